"""Words of verbs as people write them: flags, keyword arguments and plan files follow from these records."""
