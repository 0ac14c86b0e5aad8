//! The local API: its types, shared by the daemon and the command line, and its client.
