"""Tools for coding assistants: portkern's verbs as short, structured answers over MCP."""
