"""What a bug report needs, in one file: collected, without secrets."""
