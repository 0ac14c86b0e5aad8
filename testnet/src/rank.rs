//! Percentiles by nearest rank.

/// Of sorted values the smallest that so many of a hundred do not exceed; `None` of none.
pub(crate) fn nearest<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied()
}
