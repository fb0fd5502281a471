"""What must hold, and how a submission is asked: the public half of the lab's autograder."""
