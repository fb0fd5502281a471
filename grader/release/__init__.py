"""What a course hands out: the students' zip, and the autograders of other homes. One file a kind of release."""
