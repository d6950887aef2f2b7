//! Bar charts: a panel for each row of the table, each with a scale of its own, since rows differ
//! in unit and size.
//!
//! ```text
//!   P2 get, 64 callers, op/s
//!        nicekv, tc ████████████████├──┤ 271923        the bar ends at the median, the line goes from least to most
//!         redis, tc ████████├─┤          144450
//! ```

use crate::statistics::{Summary, figure};
use plotters::prelude::{
    BLACK, Color, DrawingArea, DrawingAreaErrorKind, DrawingBackend, FontStyle, IntoDrawingArea, IntoFont,
    IntoTextStyle, PathElement, RGBColor, Rectangle, SVGBackend, Text, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Sizes in pixels.
const WIDTH: i32 = 900;
const MARGIN: i32 = 12;
const LINE_HEIGHT: i32 = 20;
const BAR_HEIGHT: i32 = 13;
/// Where bars begin, and where the longest of them ends. The label is left of it, the number right
/// of it.
const BARS: (i32, i32) = (230, 790);
/// Line height in pixels; letters take four fifths of it.
const FONT: (&str, u32) = ("sans-serif", 16);
const OURS: RGBColor = RGBColor(31, 119, 180);
const PEERS: RGBColor = RGBColor(160, 160, 160);

/// Bars drawn to one scale, which begins at 0.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) bars: Vec<Bar>,
}

/// One system's figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) is_peers: bool,
    pub(crate) summary: Summary,
}

impl Bar {
    pub(crate) fn ours(label: impl Into<String>, figures: &[f64]) -> Self {
        Self { label: label.into(), is_peers: false, summary: Summary::of(figures) }
    }

    pub(crate) fn peers(label: impl Into<String>, figures: &[f64]) -> Self {
        Self { is_peers: true, ..Self::ours(label, figures) }
    }
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// An SVG image of the panels, one below the other.
pub(crate) fn svg(panels: &[Panel]) -> String {
    let lines: usize = panels.iter().map(|panel| panel.bars.len() + 2).sum();
    let height = 2 * MARGIN + LINE_HEIGHT * lines as i32;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH as u32, height as u32)).into_drawing_area();
        draw(&area, panels).expect("drawing into a string cannot fail");
    }
    text
}

fn draw<'a>(area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>, panels: &[Panel]) -> Drawn<'a> {
    area.fill(&WHITE)?;
    let mut top = MARGIN;
    for panel in panels {
        let style = FONT.into_font().style(FontStyle::Bold).into_text_style(area);
        area.draw(&Text::new(panel.title.as_str(), (MARGIN, top), style))?;
        top += LINE_HEIGHT;
        let most = panel.bars.iter().map(|bar| bar.summary.max).fold(f64::MIN_POSITIVE, f64::max);
        for bar in &panel.bars {
            draw_bar(area, bar, most, top)?;
            top += LINE_HEIGHT;
        }
        top += LINE_HEIGHT;
    }
    area.present()
}

fn draw_bar<'a>(
    area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    bar: &Bar,
    most: f64,
    top: i32,
) -> Drawn<'a> {
    let (begin, end) = BARS;
    let at = |value: f64| begin + (f64::from(end - begin) * value / most).round() as i32;
    // A difference may be negative by chance; a bar may not.
    let [median, min, max] =
        [bar.summary.median, bar.summary.min, bar.summary.max].map(|value| value.max(0.0));
    let (bottom, middle) = (top + BAR_HEIGHT, top + BAR_HEIGHT / 2);
    let color = if bar.is_peers { PEERS } else { OURS };
    area.draw(&Rectangle::new([(begin, top), (at(median), bottom)], color.filled()))?;
    area.draw(&PathElement::new([(at(min), middle), (at(max), middle)], BLACK))?;
    for value in [min, max] {
        area.draw(&PathElement::new([(at(value), middle - 3), (at(value), middle + 3)], BLACK))?;
    }
    let style = FONT.into_font().into_text_style(area);
    let right = style.pos(Pos::new(HPos::Right, VPos::Top));
    area.draw(&Text::new(bar.label.as_str(), (begin - 6, top), right))?;
    area.draw(&Text::new(figure(median), (end + 6, top), style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_end_at_medians_on_the_scale_of_their_panel() {
        let bar = |label: &str, median: f64| Bar::ours(label, &[median / 2.0, median, median * 2.0]);
        let bars = vec![bar("a < b", 50.0), Bar { is_peers: true, ..bar("c", 25.0) }];
        let image = svg(&[Panel { title: "put, us".into(), bars }]);
        let width = BARS.1 - BARS.0;
        // The scale ends at the greatest maximum, 100.
        for median in [width / 2, width / 4] {
            let bar = format!("<rect x=\"{}\" y=", BARS.0);
            let end = format!("width=\"{median}\" height=\"{BAR_HEIGHT}\"");
            assert!(image.lines().any(|line| line.starts_with(&bar) && line.contains(&end)), "{image}");
        }
        assert!(image.contains("put, us") && image.contains("a &lt; b"), "{image}");
    }
}
