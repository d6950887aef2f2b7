//! Line charts, with linear or logarithmic axes. The legend is right of the curves, where it hides
//! none of them.

use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::{
    BLACK, Cartesian2d, ChartBuilder, ChartContext, Circle, Color, Cross, DrawingArea, DrawingAreaErrorKind,
    DrawingBackend, IntoDrawingArea, PathElement, RGBColor, SVGBackend, Text, WHITE,
};
use plotters::series::LineSeries;

/// Width of the image and height of each chart, in pixels.
const WIDTH: u32 = 900;
const HEIGHT: u32 = 320;
/// Where the legend begins, and the height of its lines.
const LEGEND_AT: u32 = 690;
const LEGEND_LINE_HEIGHT: i32 = 20;
/// Significant digits of a number on an axis.
const DIGITS: usize = 3;
/// Maximum number of labels along an axis. On a logarithmic one they are crowded before powers of
/// ten.
const LABELS: usize = 10;
const LOGARITHMIC_LABELS: usize = 5;
const COLORS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(44, 160, 44),
    RGBColor(160, 160, 160),
    RGBColor(214, 39, 40),
    RGBColor(255, 127, 14),
    RGBColor(148, 103, 189),
];

/// Names and scales of both axes. A linear vertical axis begins at 0.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    pub(crate) x: &'static str,
    pub(crate) y: String,
    /// The horizontal axis.
    pub(crate) is_logarithmic: bool,
    /// The vertical axis: for figures of which some are many times others.
    pub(crate) is_y_logarithmic: bool,
}

/// Curves with their names.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) axes: Axes,
    pub(crate) curves: Vec<(String, Vec<(f64, f64)>)>,
    /// Points of the paper, each with the index of its curve.
    pub(crate) marks: Vec<(usize, (f64, f64))>,
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// An SVG image of the charts, one below the other. A curve has the same colour in all of them.
pub(crate) fn svg(charts: &[Chart]) -> String {
    let mut text = String::new();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in charts.iter().flat_map(|chart| &chart.curves) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    {
        let height = HEIGHT * charts.len().max(1) as u32;
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE).expect("drawing into a string cannot fail");
        for (chart, area) in charts.iter().zip(area.split_evenly((charts.len().max(1), 1))) {
            draw(&area, chart, &names).expect("drawing into a string cannot fail");
        }
        area.present().expect("drawing into a string cannot fail");
    }
    text
}

/// The powers of ten around all positive values.
fn logarithmic(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (least, most) = values
        .filter(|value| *value > 0.0)
        .fold((f64::INFINITY, 0.0), |(least, most), value| (value.min(least), value.max(most)));
    let least = if least.is_finite() { least.max(1e-9) } else { 0.1 };
    let [low, high] = [least.log10().floor(), most.max(least).log10().ceil()];
    10_f64.powf(low)..10_f64.powf(high.max(low + 1.0))
}

fn draw<'a>(area: &DrawingArea<SVGBackend<'a>, Shift>, chart: &Chart, names: &[&str]) -> Drawn<'a> {
    let color = |index: usize| color(names, &chart.curves[index].0);
    let points = || {
        let of_curves = chart.curves.iter().flat_map(|(_, points)| points.iter().copied());
        of_curves.chain(chart.marks.iter().map(|(_, point)| *point))
    };
    let [least, most] = [f64::min, f64::max].map(|choose| points().map(|point| point.0).reduce(choose));
    let (least, most) = (least.unwrap_or(0.0), most.unwrap_or(1.0));
    let most = if most > least { most } else { least + 1.0 };
    let highest = points().map(|point| point.1).fold(0.0, f64::max);
    // Leaves room above the highest point.
    let even_y = 0.0..if highest > 0.0 { highest * 1.05 } else { 1.0 };
    let (low, high) = (points().map(|point| point.0), points().map(|point| point.1));
    let (axes_area, names_area) = area.split_horizontally(LEGEND_AT);
    let mut builder = ChartBuilder::on(&axes_area);
    builder
        .caption(&chart.title, ("sans-serif", 16))
        .margin(12)
        .margin_right(28)
        .x_label_area_size(40)
        .y_label_area_size(64);
    let Axes { is_logarithmic, is_y_logarithmic, .. } = chart.axes;
    match (is_logarithmic, is_y_logarithmic) {
        (false, false) => draw_curves(builder.build_cartesian_2d(least..most, even_y)?, chart, color),
        (true, false) => {
            draw_curves(builder.build_cartesian_2d(logarithmic(low).log_scale(), even_y)?, chart, color)
        }
        (false, true) => {
            draw_curves(builder.build_cartesian_2d(least..most, logarithmic(high).log_scale())?, chart, color)
        }
        (true, true) => {
            let ranges = (logarithmic(low).log_scale(), logarithmic(high).log_scale());
            draw_curves(builder.build_cartesian_2d(ranges.0, ranges.1)?, chart, color)
        }
    }?;
    draw_names(&names_area, chart, color)
}

fn color(names: &[&str], name: &str) -> RGBColor {
    let index = names.iter().position(|known| *known == name).unwrap_or_default();
    COLORS[index % COLORS.len()]
}

fn draw_names<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    chart: &Chart,
    color: impl Fn(usize) -> RGBColor,
) -> Drawn<'a> {
    let place = |row: usize| 48 + LEGEND_LINE_HEIGHT * row as i32;
    for (index, (name, _)) in chart.curves.iter().enumerate() {
        let y = place(index);
        area.draw(&PathElement::new(vec![(0, y + 6), (16, y + 6)], color(index).stroke_width(2)))?;
        area.draw(&Text::new(name.as_str(), (22, y), ("sans-serif", 14)))?;
    }
    if !chart.marks.is_empty() {
        let y = place(chart.curves.len());
        area.draw(&Cross::new((8, y + 6), 4, BLACK.stroke_width(2)))?;
        area.draw(&Text::new("the paper's", (22, y), ("sans-serif", 14)))?;
    }
    Ok(())
}

/// The number without trailing zeros.
fn number(value: &f64) -> String {
    if *value == 0.0 {
        return "0".into();
    }
    let behind = (DIGITS as i32 - 1 - value.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.behind$}");
    if behind == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').into() }
}

fn draw_curves<'a, X, Y>(
    mut axes: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    chart: &Chart,
    color: impl Fn(usize) -> RGBColor,
) -> Drawn<'a>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    axes.configure_mesh()
        .x_desc(chart.axes.x)
        .y_desc(&chart.axes.y)
        .x_label_formatter(&number)
        .y_label_formatter(&number)
        .label_style(("sans-serif", 13))
        .y_labels(if chart.axes.is_y_logarithmic { LOGARITHMIC_LABELS } else { LABELS })
        .max_light_lines(0)
        .draw()?;
    for (index, (_, points)) in chart.curves.iter().enumerate() {
        let color = color(index);
        axes.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?;
        // Points are marked only if there are few.
        let are_few = points.len() <= 20;
        axes.draw_series(
            points.iter().filter(|_| are_few).map(|point| Circle::new(*point, 3, color.filled())),
        )?;
    }
    let mark = |(index, point): &(usize, (f64, f64))| Cross::new(*point, 5, color(*index).stroke_width(2));
    axes.draw_series(chart.marks.iter().map(mark))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_is_drawn_and_named() {
        let points =
            |by: f64| (0..=10).map(|part| (by * f64::from(part + 1), f64::from(part) / 10.0)).collect();
        let curves = vec![("one".to_owned(), points(10.0)), ("other".to_owned(), points(20.0))];
        for (is_logarithmic, is_y_logarithmic) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let axes = Axes { x: "us", y: "part of all".into(), is_logarithmic, is_y_logarithmic };
            let marks = vec![(1, (15.0, 0.5))];
            let image = svg(&[Chart { title: "get".into(), axes, curves: curves.clone(), marks }]);
            assert!(image.matches("<polyline").count() >= 2, "{image}");
            let has = |text: &str| image.contains(text);
            assert!(has("one") && has("other") && has("get") && has("part of all"), "{image}");
        }
        // A curve without width or height is drawn, too.
        for is in [false, true] {
            let axes = || Axes { x: "x", y: "y".into(), is_logarithmic: is, is_y_logarithmic: is };
            let flat = |points| Chart {
                title: "flat".into(),
                axes: axes(),
                curves: vec![("one".into(), points)],
                marks: vec![],
            };
            svg(&[flat(vec![(3.0, 0.0)]), flat(Vec::new())]);
        }
    }

    #[test]
    fn numbers_on_axes_have_three_digits_and_no_trailing_zeros() {
        let texts = [0.0, 0.0004, 0.017, 0.5, 1.0, 15.4, 1_000.0, 12_345.6].map(|value| number(&value));
        assert_eq!(texts, ["0", "0.0004", "0.017", "0.5", "1", "15.4", "1000", "12346"]);
    }
}
