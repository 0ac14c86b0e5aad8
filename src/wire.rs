//! What travels: the protocols, their versions, limits and bytes.
