"""From a Report to an output: one module a format. None of them computes anything that the Report does not say."""
