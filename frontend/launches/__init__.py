"""What users launch elsewhere, command lines and files of other frameworks, read into the words of a plan."""
