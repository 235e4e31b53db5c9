"""Answers, a folder for each question: who holds it, through which references, why. Touches live objects."""
