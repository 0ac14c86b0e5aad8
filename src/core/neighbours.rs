//! Decides to whom this node stays linked, and how a control message travels.
