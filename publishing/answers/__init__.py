"""The contents of the answers of API and page: queries, structs, and the functions that fill the structs."""
