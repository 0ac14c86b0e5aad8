//! What survives a restart: an embedded database and secret files.
