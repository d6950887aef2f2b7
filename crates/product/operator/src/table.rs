//! Text tables.

use comfy_table::{CellAlignment, presets};
use nicekv_fields::Column;

/// Spaces between two columns.
const SPACING: u16 = 2;

/// A table with its title.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) head: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    /// For each column whether it is aligned to the right; columns beyond the end of the list are
    /// aligned to the left.
    numbers: Vec<bool>,
}

impl Table {
    /// A table whose columns are all aligned to the left.
    pub(crate) fn new(title: impl Into<String>, head: &[&'static str], rows: Vec<Vec<String>>) -> Self {
        Self { title: title.into(), head: head.to_vec(), rows, numbers: Vec::new() }
    }

    /// A table with a row for each item. Text columns that are empty in every row are left out.
    pub(crate) fn of<'a, T: 'a>(
        title: impl Into<String>,
        columns: &[Column<T>],
        items: impl IntoIterator<Item = &'a T>,
    ) -> Self {
        let items: Vec<&T> = items.into_iter().collect();
        let is_shown = |column: &&Column<T>| {
            column.is_number() || items.is_empty() || items.iter().any(|item| !column.cell(item).is_empty())
        };
        let columns: Vec<_> = columns.iter().filter(is_shown).collect();
        let row = |item: &&T| columns.iter().map(|column| column.cell(item)).collect();
        Self {
            title: title.into(),
            head: columns.iter().map(|column| column.name()).collect(),
            rows: items.iter().map(row).collect(),
            numbers: columns.iter().map(|column| column.is_number()).collect(),
        }
    }

    /// Aligns the first columns to the right.
    pub(crate) fn with_numbers(self, columns: usize) -> Self {
        Self { numbers: vec![true; columns], ..self }
    }

    /// Adds a column of text at the right.
    pub(crate) fn with(mut self, name: &'static str, cells: impl IntoIterator<Item = String>) -> Self {
        self.head.push(name);
        self.rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
        self
    }

    /// The longest cell of each column, in characters.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.head[column].len()]).max().unwrap_or(0)
        };
        (0..self.head.len()).map(width).collect()
    }

    pub(crate) fn is_number(&self, column: usize) -> bool {
        self.numbers.get(column).copied().unwrap_or(false)
    }

    /// The heading and a line for each row, without the title.
    pub(crate) fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING).set_header(&self.head);
        table.add_rows(&self.rows);
        for (number, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, SPACING));
            if self.is_number(number) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt() + "\n"
    }

    /// The title and the table, indented.
    pub(crate) fn section(&self) -> String {
        let lines = self.text().lines().map(|line| format!("  {line}\n")).collect::<String>();
        format!("\n{}\n{lines}", self.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_fields::{Field, Unit};

    #[test]
    fn columns_fit_their_cells_and_empty_ones_are_left_out() {
        let size = Field { name: "size", unit: Unit::Bytes, help: "", read: |(_, size)| *size };
        let columns: [Column<(&str, u64)>; 3] = [
            Column::Text("name", |(name, _)| (*name).into()),
            Column::Text("note", |_| String::new()),
            Column::Number(size),
        ];
        let table = Table::of("sizes", &columns, &[("a", 7), ("longer", 1_200)]);
        assert_eq!(table.widths(), [6, 6]);
        assert_eq!(table.section(), "\nsizes\n  name      size\n  a          7 B\n  longer  1.2 kB\n");
        let table = table.with("more", ["x".into(), String::new()]);
        assert_eq!(table.text(), "name      size  more\na          7 B  x\nlonger  1.2 kB\n");
    }
}
