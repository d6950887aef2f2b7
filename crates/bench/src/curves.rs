//! Charts of curves, to a scale of their own, which is even or logarithmic.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{
    BLACK, Cartesian2d, ChartBuilder, ChartContext, DrawingArea, DrawingAreaErrorKind, DrawingBackend,
    IntoDrawingArea, IntoLogRange, PathElement, RGBColor, SVGBackend, WHITE,
};
use plotters::series::LineSeries;

const WIDTH: u32 = 900;
/// Of a chart.
const HEIGHT: u32 = 320;
const COLORS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(44, 160, 44),
    RGBColor(160, 160, 160),
    RGBColor(214, 39, 40),
    RGBColor(255, 127, 14),
    RGBColor(148, 103, 189),
];

/// What is drawn over what. The vertical axis begins at 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axes {
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    /// Whether the horizontal one is.
    pub(crate) is_logarithmic: bool,
}

/// Curves by their names.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) axes: Axes,
    pub(crate) curves: Vec<(&'static str, Vec<(f64, f64)>)>,
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// An SVG image of the charts, one below the other.
pub(crate) fn svg(charts: &[Chart]) -> String {
    let mut text = String::new();
    {
        let height = HEIGHT * charts.len().max(1) as u32;
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE).expect("strings take everything");
        for (chart, area) in charts.iter().zip(area.split_evenly((charts.len().max(1), 1))) {
            draw(&area, chart).expect("strings take everything");
        }
        area.present().expect("strings take everything");
    }
    text
}

fn draw<'a>(area: &DrawingArea<SVGBackend<'a>, Shift>, chart: &Chart) -> Drawn<'a> {
    let points = || chart.curves.iter().flat_map(|(_, points)| points);
    let [least, most] = [f64::min, f64::max].map(|choose| points().map(|point| point.0).reduce(choose));
    let (least, most) = (least.unwrap_or(0.0), most.unwrap_or(1.0));
    let highest = points().map(|point| point.1).fold(0.0, f64::max);
    let highest = if highest > 0.0 { highest } else { 1.0 };
    let mut builder = ChartBuilder::on(area);
    builder.caption(&chart.title, ("sans-serif", 16)).margin(12).x_label_area_size(36).y_label_area_size(56);
    if chart.axes.is_logarithmic {
        let least = least.clamp(0.1, 1e7);
        let range = (least..most.clamp(least * 1.1, 1e8)).log_scale();
        return draw_curves(builder.build_cartesian_2d(range, 0.0..highest)?, chart);
    }
    let most = if most > least { most } else { least + 1.0 };
    draw_curves(builder.build_cartesian_2d(least..most, 0.0..highest)?, chart)
}

fn draw_curves<'a, X: Ranged<ValueType = f64> + ValueFormatter<f64>>(
    mut axes: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, RangedCoordf64>>,
    chart: &Chart,
) -> Drawn<'a> {
    axes.configure_mesh().x_desc(chart.axes.x).y_desc(chart.axes.y).draw()?;
    for (index, (name, points)) in chart.curves.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        axes.draw_series(LineSeries::new(points.iter().copied(), color))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color));
    }
    axes.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_is_drawn_and_named() {
        let points =
            |by: f64| (0..=10).map(|part| (by * f64::from(part + 1), f64::from(part) / 10.0)).collect();
        let curves = vec![("one", points(10.0)), ("other", points(20.0))];
        for is_logarithmic in [false, true] {
            let axes = Axes { x: "us", y: "part of all", is_logarithmic };
            let image = svg(&[Chart { title: "get".into(), axes, curves: curves.clone() }]);
            assert!(image.matches("<polyline").count() >= 2, "{image}");
            let has = |text: &str| image.contains(text);
            assert!(has("one") && has("other") && has("get") && has("part of all"), "{image}");
        }
        // What has no width or height is drawn, too.
        let axes = Axes { x: "x", y: "y", is_logarithmic: false };
        let flat = |points| Chart { title: "flat".into(), axes, curves: vec![("one", points)] };
        svg(&[flat(vec![(3.0, 0.0)]), flat(Vec::new())]);
    }
}
