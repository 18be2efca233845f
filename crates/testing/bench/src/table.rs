//! Rows, ratios, targets and the Markdown table.

use std::fmt::{self, Write as _};

/// The direction in which a value is better.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
    /// A count without a ratio.
    Neither,
}

/// The target for Trellis.
#[derive(Clone, Copy)]
pub enum Target {
    None,
    /// Better than the original by these factors.
    Factor {
        memory: Option<f64>,
        database: Option<f64>,
    },
    AtMost(f64),
    AtLeast(f64),
}

pub struct Metric {
    pub name: String,
    pub better: Better,
    pub target: Target,
}

impl Metric {
    pub fn new(name: impl Into<String>, better: Better, target: Target) -> Self {
        Self { name: name.into(), better, target }
    }
}

/// One measured value, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Number(f64),
    /// Measured with a flaw that does not flatter the server: still comparable.
    Remarked(f64, String),
    /// A lower bound: the measurement was cut off.
    Above(f64),
    /// An upper bound.
    Below(f64),
    /// Measured under conditions that make a ratio meaningless.
    Incomparable(f64, String),
    Missing(String),
}

impl Cell {
    fn comparable(&self) -> Option<f64> {
        match self {
            Cell::Number(value) | Cell::Remarked(value, _) => Some(*value),
            Cell::Above(_) | Cell::Below(_) | Cell::Incomparable(..) | Cell::Missing(_) => None,
        }
    }

    fn value(&self) -> Option<f64> {
        match self {
            Cell::Number(value) | Cell::Remarked(value, _) | Cell::Incomparable(value, _) => Some(*value),
            Cell::Above(_) | Cell::Below(_) | Cell::Missing(_) => None,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Number(value) => f.write_str(&short(*value)),
            Cell::Remarked(value, remark) | Cell::Incomparable(value, remark) => {
                write!(f, "{} ({remark})", short(*value))
            }
            Cell::Above(value) => write!(f, "> {}", short(*value)),
            Cell::Below(value) => write!(f, "< {}", short(*value)),
            Cell::Missing(why) => f.write_str(why),
        }
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Cell::Number(value)
    }
}

/// One row of the table: the original in memory, the original with its database, Trellis.
pub struct Row {
    pub metric: Metric,
    pub memory: Cell,
    pub database: Cell,
    pub ours: Cell,
}

/// The factor by which Trellis is better.
struct Factor {
    value: f64,
    /// The original was cut off, so the factor is a lower bound.
    or_more: bool,
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}x", if self.or_more { "> " } else { "" }, short(self.value))
    }
}

impl Row {
    fn factor(&self, original: &Cell) -> Option<Factor> {
        let ours = self.ours.comparable()?;
        let (theirs, or_more) = match (original, self.metric.better) {
            (Cell::Above(theirs), Better::Lower) | (Cell::Below(theirs), Better::Higher) => (*theirs, true),
            (cell, _) => (cell.comparable()?, false),
        };
        let value = match self.metric.better {
            Better::Lower => theirs / ours,
            Better::Higher => ours / theirs,
            Better::Neither => return None,
        };
        value.is_finite().then_some(Factor { value, or_more })
    }

    /// Returns whether the target is met, or `None` without a target or a value.
    fn met(&self) -> Option<bool> {
        match self.metric.target {
            Target::None => None,
            Target::AtMost(limit) => self.ours.value().map(|ours| ours <= limit),
            Target::AtLeast(limit) => self.ours.value().map(|ours| ours >= limit),
            Target::Factor { memory, database } => {
                let judge = |(wanted, cell): (Option<f64>, &Cell)| {
                    let (wanted, factor) = (wanted?, self.factor(cell)?);
                    let met = factor.value >= wanted;
                    (met || !factor.or_more).then_some(met)
                };
                let judged: Vec<bool> =
                    [(memory, &self.memory), (database, &self.database)].into_iter().filter_map(judge).collect();
                (!judged.is_empty()).then(|| judged.into_iter().all(|met| met))
            }
        }
    }

    fn target_text(&self) -> String {
        match self.metric.target {
            Target::None => String::new(),
            Target::AtMost(0.0) => "0".to_owned(),
            Target::AtMost(limit) => format!("<= {}", short(limit)),
            Target::AtLeast(limit) => format!(">= {}", short(limit)),
            Target::Factor { memory, database } => {
                let part = |factor: Option<f64>| factor.map_or("-".to_owned(), |f| format!(">= {}x", short(f)));
                format!("{} / {}", part(memory), part(database))
            }
        }
    }
}

/// Renders the table as Markdown; the title of each section is a bold row. `names` are the three servers.
pub fn markdown(names: [&str; 3], sections: &[(String, Vec<Row>)]) -> String {
    let [memory, database, ours] = names;
    let mut text = format!(
        "| | {memory} | {database} | {ours} | better than memory | better than --database | target | met |\n\
         |---|---|---|---|---|---|---|---|\n"
    );
    for (title, rows) in sections {
        let _ = writeln!(text, "| **{title}** | | | | | | | |");
        for row in rows {
            let factor = |cell: &Cell| row.factor(cell).map_or("-".to_owned(), |factor| factor.to_string());
            let met = row.met().map_or("", |met| if met { "yes" } else { "**no**" });
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {met} |",
                row.metric.name,
                row.memory,
                row.database,
                row.ours,
                factor(&row.memory),
                factor(&row.database),
                row.target_text(),
            );
        }
    }
    text
}

/// Formats a number with three significant digits and thousands separators.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if size >= 99.95 {
        return thousands(value.round() as i64);
    }
    let decimals = (2 - size.log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn thousands(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::from(if value < 0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let cases = [
            (0.0, "0"),
            (0.01234, "0.0123"),
            (0.5, "0.5"),
            (1.16, "1.16"),
            (8.4, "8.4"),
            (39.0, "39"),
            (57.25, "57.2"),
            (99.99, "100"),
            (916.4, "916"),
            (10_000.0, "10,000"),
            (1_234_567.0, "1,234,567"),
            (-1500.0, "-1,500"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text, "{value}");
        }
    }

    fn row(better: Better, target: Target, cells: [Cell; 3]) -> Row {
        let [memory, database, ours] = cells;
        Row { metric: Metric::new("m", better, target), memory, database, ours }
    }

    #[test]
    fn factors_have_the_right_direction_and_targets_need_both() {
        let target = Target::Factor { memory: Some(3.0), database: Some(10.0) };
        let lower = row(Better::Lower, target, [1.25.into(), 8.0.into(), 0.25.into()]);
        assert_eq!(lower.met(), Some(true));
        let short_of_database = row(Better::Lower, target, [1.25.into(), 2.0.into(), 0.25.into()]);
        assert_eq!(short_of_database.met(), Some(false));
        let higher = row(Better::Higher, target, [100.0.into(), 10.0.into(), 300.0.into()]);
        assert_eq!(higher.met(), Some(true));
    }

    #[test]
    fn incomparable_values_have_no_factor() {
        let target = Target::Factor { memory: Some(3.0), database: None };
        let overloaded = Cell::Incomparable(90.0, "overloaded".into());
        assert_eq!(row(Better::Lower, target, [overloaded, 8.0.into(), 1.0.into()]).met(), None);
        let lossy = Cell::Remarked(90.0, "1 lost".into());
        assert_eq!(row(Better::Lower, target, [lossy, 8.0.into(), 1.0.into()]).met(), Some(true));
        let missing = Cell::Missing("failed".into());
        assert_eq!(row(Better::Lower, Target::AtMost(25.0), [1.0.into(), 1.0.into(), missing]).met(), None);
        assert_eq!(row(Better::Lower, target, [1.0.into(), 1.0.into(), 0.0.into()]).met(), None);
    }

    #[test]
    fn a_value_that_was_cut_off_can_meet_a_target_but_not_miss_it() {
        let target = Target::Factor { memory: Some(20.0), database: None };
        let missing = || Cell::Missing("not run".into());
        let wall = |ours: f64| row(Better::Lower, target, [Cell::Above(200.0), missing(), ours.into()]);
        assert_eq!((wall(8.0).met(), wall(40.0).met()), (Some(true), None));
        assert_eq!(wall(8.0).factor(&Cell::Above(200.0)).unwrap().to_string(), "> 25x");
        let rate = row(Better::Higher, target, [Cell::Below(5.0), missing(), 125.0.into()]);
        assert_eq!(rate.met(), Some(true));
        assert_eq!((Cell::Above(200.0).to_string(), Cell::Below(5.0).to_string()), ("> 200".into(), "< 5".into()));
        let ours_cut_off = row(Better::Lower, target, [8.0.into(), missing(), Cell::Above(200.0)]);
        assert_eq!(ours_cut_off.met(), None);
    }

    #[test]
    fn at_least_uses_the_value_of_trellis_only() {
        let held = |ours: f64| row(Better::Neither, Target::AtLeast(10.0), [1.0.into(), 1.0.into(), ours.into()]);
        assert_eq!((held(10.0).met(), held(9.0).met()), (Some(true), Some(false)));
    }

    #[test]
    fn the_table_is_markdown() {
        let target = Target::Factor { memory: Some(3.0), database: Some(10.0) };
        let rows = vec![
            row(Better::Lower, target, [1.2.into(), Cell::Incomparable(8.0, "overloaded".into()), 0.3.into()]),
            row(Better::Neither, Target::AtMost(0.0), [1.0.into(), 0.0.into(), 2.0.into()]),
        ];
        let text = markdown(["1.25 memory", "1.25 --database", "trellis"], &[("per request".into(), rows)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "| | 1.25 memory | 1.25 --database | trellis | better than memory | better than --database | target | met |",
                "|---|---|---|---|---|---|---|---|",
                "| **per request** | | | | | | | |",
                "| m | 1.2 | 8 (overloaded) | 0.3 | 4x | - | >= 3x / >= 10x | yes |",
                "| m | 1 | 0 | 2 | - | - | 0 | **no** |",
            ]
        );
    }
}
