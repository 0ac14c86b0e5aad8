//! What a demo or a benchmark measured, for people and for programs.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::rank::nearest;

/// How long many runs of one thing took, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Spread {
    /// How many runs.
    pub count: usize,
    /// Half of them took no longer.
    pub median_ms: f64,
    /// Nine of ten took no longer.
    pub p90_ms: f64,
    /// 99 of 100 took no longer.
    pub p99_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

impl Spread {
    /// The spread of some times in milliseconds; `None` of none.
    pub fn of(mut times: Vec<f64>) -> Option<Self> {
        times.sort_by(f64::total_cmp);
        Some(Self {
            count: times.len(),
            median_ms: nearest(&times, 50)?,
            p90_ms: nearest(&times, 90)?,
            p99_ms: nearest(&times, 99)?,
            max_ms: nearest(&times, 100)?,
        })
    }
}

/// One measured thing.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What it should be, if the project promises something.
    pub promise: Option<&'static str>,
}

/// A table of figures for people.
pub fn table(figures: &[Figure]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["MEASURED", "VALUE", "", "PROMISE"]);
    for figure in figures {
        table.add_row([
            figure.what.clone(),
            match figure.value.fract() {
                0.0 => format!("{:.0}", figure.value),
                _ => format!("{:.1}", figure.value),
            },
            figure.unit.to_owned(),
            figure.promise.unwrap_or("").to_owned(),
        ]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_by_nearest_rank() {
        let spread = Spread::of((1..=200).rev().map(f64::from).collect()).unwrap();
        assert_eq!((spread.median_ms, spread.p99_ms, spread.max_ms), (100.0, 198.0, 200.0));
        assert_eq!(Spread::of(vec![3.0]).unwrap().p99_ms, 3.0);
        assert!(Spread::of(Vec::new()).is_none());
    }
}
