//! Decides in what order requests are placed.
