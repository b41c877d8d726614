raise_if_imported_again = __name__
