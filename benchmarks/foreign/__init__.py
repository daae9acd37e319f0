"""How much of packages that nobody here wrote is traced as it is, and whether the graphs agree with torch's count."""
