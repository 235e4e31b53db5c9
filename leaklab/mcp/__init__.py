"""leaklab for an assistant: a server of the Model Context Protocol, whose tools run in a child process each."""
