"""The live strip: memory and state of a loop, drawn while its cell runs."""
