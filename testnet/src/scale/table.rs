//! The table.

use comfy_table::{CellAlignment, Table, presets};

use super::figures::{Figures, Spread};

/// A column for each mesh, a row for each figure: in Markdown, as `docs/scale.md` has it.
pub(super) fn table(all: &[Figures]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let head = all.iter().map(|figures| format!("{} nodes", figures.nodes));
    table.set_header(std::iter::once(String::new()).chain(head));
    let mut row = |name: &str, cell: &dyn Fn(&Figures) -> String| {
        table.add_row(std::iter::once(name.to_owned()).chain(all.iter().map(cell)));
    };
    row("links of a node", &|f| format!("{:.1}", f.links));
    row("change known to the controller", &|f| spread(f.change_controller));
    row("change known to all", &|f| spread(f.change_all));
    row("killed daemon known dead", &|f| spread(f.death_kill));
    row("powerless machine known dead", &|f| spread(f.death_power));
    row("failover, controller killed", &|f| spread(f.failover_kill));
    row("failover, controller without power", &|f| spread(f.failover_power));
    row("joiner known to all", &|f| spread(f.join_known));
    row("joiner knows all", &|f| time(f.join_knows_ms));
    row("false deaths", &|f| f.false_deaths.to_string());
    row("idle: messages per node and second", &|f| format!("{:.2}", f.idle.messages));
    row("idle: bytes per node and second", &|f| format!("{:.0}", f.idle.bytes));
    row("idle: dials per node and second", &|f| format!("{:.2}", f.idle.dials));
    row("busy: messages per node and second", &|f| format!("{:.1}", f.busy.messages));
    row("busy: bytes per node and second", &|f| format!("{:.0}", f.busy.bytes));
    row("virtual seconds per real second", &|f| format!("{:.1}", f.virtual_per_real_second));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn spread(spread: Spread) -> String {
    format!("{} / {}", time(spread.p50_ms), time(spread.p99_ms))
}

fn time(ms: f64) -> String {
    if ms < 1_000.0 { format!("{ms:.1} ms") } else { format!("{:.2} s", ms / 1_000.0) }
}
