//! Decides whether a GPU is taken: the only place that may say so.
