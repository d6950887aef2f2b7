//! Charts of distributions: of how many ops took at most how long.

use plotters::prelude::{
    BLACK, ChartBuilder, DrawingArea, DrawingAreaErrorKind, DrawingBackend, IntoDrawingArea, IntoLogRange,
    PathElement, RGBColor, SVGBackend, WHITE,
};
use plotters::series::LineSeries;

const WIDTH: u32 = 900;
/// Of a chart.
const HEIGHT: u32 = 320;
const COLORS: [RGBColor; 3] = [RGBColor(31, 119, 180), RGBColor(44, 160, 44), RGBColor(160, 160, 160)];

/// Curves of microseconds, on a logarithmic scale, and parts of all.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
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

fn draw<'a>(area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>, chart: &Chart) -> Drawn<'a> {
    let times = || chart.curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.0));
    let least = times().fold(f64::MAX, f64::min).clamp(0.1, 1e7);
    let most = times().fold(0.0, f64::max).clamp(least * 1.1, 1e8);
    let mut axes = ChartBuilder::on(area)
        .caption(&chart.title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d((least..most).log_scale(), 0.0..1.0)?;
    axes.configure_mesh().x_desc("us").y_desc("part of all").draw()?;
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
        let image = svg(&[Chart { title: "get".into(), curves }]);
        assert!(image.matches("<polyline").count() >= 2, "{image}");
        assert!(image.contains("one") && image.contains("other") && image.contains("get"), "{image}");
    }
}
