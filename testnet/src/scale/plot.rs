//! The plot: times and idle cost against the size of the mesh, both axes logarithmic.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::figures::Figures;

/// What one line shows of a mesh.
type Reading = fn(&Figures) -> f64;

const TIMES: [(&str, Reading); 5] = [
    ("change known to the controller", |f| f.change_controller.p99_ms),
    ("change known to all", |f| f.change_all.p99_ms),
    ("failover, controller killed", |f| f.failover_kill.p99_ms),
    ("killed daemon known dead", |f| f.death_kill.p99_ms),
    ("powerless machine known dead", |f| f.death_power.p99_ms),
];

const LOADS: [(&str, Reading); 4] = [
    ("idle: messages", |f| f.idle.messages),
    ("idle: bytes", |f| f.idle.bytes),
    ("busy: messages", |f| f.busy.messages),
    ("busy: bytes", |f| f.busy.bytes),
];

const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(90, 90, 90),
];

/// Draws an SVG.
pub(super) fn plot(all: &[Figures], file: &Path) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(file, (1_100, 460)).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(550);
    panel(&left, "time until known, p99 (ms)", &TIMES, all)?;
    panel(&right, "per node and second", &LOADS, all)?;
    root.present()?;
    Ok(())
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    lines: &[(&str, Reading)],
    all: &[Figures],
) -> Result<(), Box<dyn Error>> {
    let sizes = || all.iter().map(|figures| figures.nodes as f64);
    let values = || lines.iter().flat_map(|(_, of)| all.iter().map(of)).filter(|at| *at > 0.0);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(1.0, f64::max);
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MAX, f64::min);
    let x = least(&mut sizes()).min(1e6)..most(&mut sizes()).max(2.0);
    // Room for the legend above the lines.
    let y = least(&mut values()).min(1e6) / 2.0..most(&mut values()) * 60.0;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .margin_right(28)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(x.log_scale(), y.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("nodes")
        .x_label_formatter(&|at| format!("{at:.0}"))
        .y_label_formatter(&|at| if *at < 1.0 { format!("{at}") } else { format!("{at:.0}") })
        .light_line_style(RGBColor(240, 240, 240))
        .draw()?;
    for ((name, of), colour) in lines.iter().zip(COLOURS) {
        let points = || all.iter().map(|figures| (figures.nodes as f64, of(figures)));
        let line = LineSeries::new(points(), colour.stroke_width(2));
        chart
            .draw_series(line)?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points().map(|at| Circle::new(at, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
}
