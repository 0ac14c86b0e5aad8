//! Keeps the latest report of every node; decides which of two reports is newer.
