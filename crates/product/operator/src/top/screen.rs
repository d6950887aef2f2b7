//! The live screen.

use crate::failure::Failure;
use crate::table::Table;
use crate::tables::Screen;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{self, Block, Borders, Paragraph, Row};
use ratatui::{DefaultTerminal, Frame};
use std::time::{Duration, Instant};

/// Maximum number of problems that are listed; further ones are only counted.
const PROBLEMS_MAX: usize = 6;

/// Shows `shown`, and then each result of `look`, until the user presses `q`, Escape or Ctrl-C.
pub(super) fn run(
    shown: Screen,
    interval: Duration,
    look: impl FnMut() -> Result<Screen, Failure>,
) -> Result<(), Failure> {
    let mut terminal = ratatui::try_init().map_err(Failure::environment)?;
    let outcome = watch(&mut terminal, shown, interval, look);
    ratatui::restore();
    outcome
}

fn watch(
    terminal: &mut DefaultTerminal,
    mut shown: Screen,
    interval: Duration,
    mut look: impl FnMut() -> Result<Screen, Failure>,
) -> Result<(), Failure> {
    loop {
        let until = Instant::now() + interval;
        terminal.draw(|frame| draw(frame, &shown)).map_err(Failure::environment)?;
        if has_quit(terminal, &shown, until)? {
            return Ok(());
        }
        match look() {
            Ok(sections) => shown = sections,
            // Keeps the last status on the screen, below the failure.
            Err(failure) => shown.problems = vec![format!("{failure}; the last status is shown below")],
        }
    }
}

/// Whether the user quits before the time `until`.
fn has_quit(terminal: &mut DefaultTerminal, shown: &Screen, until: Instant) -> Result<bool, Failure> {
    while event::poll(until.saturating_duration_since(Instant::now())).map_err(Failure::environment)? {
        match event::read().map_err(Failure::environment)? {
            Event::Key(key) => {
                let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
                    KeyCode::Char('c') if is_interrupt => return Ok(true),
                    _ => {}
                }
            }
            Event::Resize(..) => {
                terminal.draw(|frame| draw(frame, shown)).map_err(Failure::environment)?;
            }
            _ => {}
        }
    }
    Ok(false)
}

fn draw(frame: &mut Frame<'_>, shown: &Screen) {
    let problems = problem_lines(shown);
    let heights = [1, problems.len() as u16].into_iter().map(Constraint::Length);
    // Each table has a title, a heading and its rows. If there is no room, the last tables are cut.
    let tables = shown.tables.iter().map(|table| Constraint::Max(table.rows.len() as u16 + 2));
    let areas = Layout::vertical(heights.chain(tables).chain([Constraint::Min(0)])).split(frame.area());
    let summary = Line::styled(format!("{}   (q: quit)", shown.summary), Modifier::BOLD);
    frame.render_widget(summary, areas[0]);
    frame.render_widget(Paragraph::new(Text::from(problems)), areas[1]);
    for (table, area) in shown.tables.iter().zip(areas.iter().skip(2)) {
        frame.render_widget(widget(table), *area);
    }
}

fn problem_lines(shown: &Screen) -> Vec<Line<'static>> {
    let red = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    let mut lines: Vec<_> = (shown.problems.iter().take(PROBLEMS_MAX))
        .map(|problem| Line::styled(format!("WRONG: {problem}"), red))
        .collect();
    if shown.problems.len() > PROBLEMS_MAX {
        lines.push(Line::styled(format!("and {} more", shown.problems.len() - PROBLEMS_MAX), red));
    }
    lines
}

fn widget(table: &Table) -> widgets::Table<'static> {
    let widths = table.widths().into_iter().map(|width| Constraint::Length(width as u16));
    let rows = table.rows.iter().map(|row| Row::new(row.clone()));
    widgets::Table::new(rows, widths.collect::<Vec<_>>())
        .header(Row::new(table.head.clone()).style(Modifier::UNDERLINED))
        .column_spacing(2)
        .block(Block::new().borders(Borders::TOP).title(table.title.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn problems_are_above_the_tables_on_any_size() {
        let row = |number: usize| vec![format!("node-{number}"), "Live".into()];
        let table = |title: &str, rows| Table::new(title, &["name", "state"], (0..rows).map(row).collect());
        let shown = Screen {
            summary: "NOT READY".into(),
            problems: (0..9).map(|number| format!("problem {number}")).collect(),
            tables: vec![table("nodes", 3), table("others", 40)],
        };
        let screen = |width, height| {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &shown)).unwrap();
            terminal.backend().to_string()
        };
        let large = screen(60, 60);
        for part in ["NOT READY", "WRONG: problem 5", "and 3 more", "nodes", "node-2", "others", "node-39"] {
            assert!(large.contains(part), "{part}: {large}");
        }
        assert!(!large.contains("problem 6"), "{large}");
        assert!(screen(40, 12).contains("WRONG: problem 0"));
        screen(1, 1);
    }
}
