//! CSV tables: a header row, numeric features, and one column with the class.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use trellis_diagnostic::{Diagnostic, suggest};

use super::{Dataset, Rows};

/// Further problems are only counted.
pub const SHOWN_PROBLEMS: usize = 20;
const MAX_FILE_BYTES: u64 = 1 << 30;
/// A column with more values does not contain classes.
const MAX_CLASSES: usize = 1000;

/// The settings that describe a table.
#[derive(Debug, Clone, Default)]
pub struct TableSettings {
    /// The column of the class; the last one by default.
    pub label: Option<String>,
    /// All classes in the order of the model's outputs; by default the sorted classes of the file.
    pub classes: Option<Vec<String>>,
}

pub fn read(path: &Path, settings: &TableSettings) -> Result<Dataset, Vec<Diagnostic>> {
    let place = path.display().to_string();
    let unreadable = |what: String| vec![Diagnostic::error(&place, what, "give the path of a readable CSV file")];
    let size = fs::metadata(path).map_err(|error| unreadable(format!("it cannot be read: {error}")))?.len();
    if size > MAX_FILE_BYTES {
        let what = format!("it has {size} bytes; the limit is {MAX_FILE_BYTES}");
        return Err(vec![Diagnostic::error(&place, what, "use a part of it")]);
    }
    let bytes = fs::read(path).map_err(|error| unreadable(format!("it cannot be read: {error}")))?;
    parse(&place, &bytes, settings)
}

fn parse(place: &str, bytes: &[u8], settings: &TableSettings) -> Result<Dataset, Vec<Diagnostic>> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(bytes);
    let header = match reader.headers() {
        Ok(header) => header.clone(),
        Err(error) => return Err(vec![not_text(place, &error)]),
    };
    let label = label_column(place, &header, settings)?;
    let mut table =
        Table { place, header: &header, label, numbers: Vec::new(), names: Vec::new(), faults: Vec::new(), more: 0 };
    for record in reader.records() {
        match record {
            Ok(record) => table.take(&record),
            Err(error) => table.fault(not_text(place, &error)),
        }
    }
    table.finish(settings)
}

fn not_text(place: &str, error: &csv::Error) -> Diagnostic {
    let line = error.position().map_or_else(String::new, |position| format!(" line {}", position.line()));
    Diagnostic::error(format!("{place}{line}"), "it is not text in UTF-8", "save the table as CSV in UTF-8")
}

fn label_column(place: &str, header: &csv::StringRecord, settings: &TableSettings) -> Result<usize, Vec<Diagnostic>> {
    let mut problems = Vec::new();
    if header.len() < 2 {
        let what = format!("its first line names {} columns", header.len());
        let advice = "begin with a line of column names, separated by commas: features and the class";
        return Err(vec![Diagnostic::error(place, what, advice)]);
    }
    let mut seen = BTreeSet::new();
    for (index, name) in header.iter().enumerate() {
        if !seen.insert(name) {
            let place = format!("{place} line 1 column {}", index + 1);
            problems.push(Diagnostic::error(place, format!("the column {name:?} appears twice"), "rename one of them"));
        }
    }
    let label = match &settings.label {
        None => Some(header.len() - 1),
        Some(label) => header.iter().position(|name| name == label),
    };
    match label {
        Some(label) if problems.is_empty() => return Ok(label),
        Some(_) => {}
        None => {
            let wanted = settings.label.as_deref().unwrap_or_default();
            let advice = suggest(wanted, header, "its columns are");
            problems.push(Diagnostic::error("label", format!("{place} has no column {wanted:?}"), advice));
        }
    }
    Err(problems)
}

struct Table<'a> {
    place: &'a str,
    header: &'a csv::StringRecord,
    label: usize,
    numbers: Vec<f32>,
    /// The class of each row, by name.
    names: Vec<String>,
    faults: Vec<Diagnostic>,
    more: usize,
}

impl Table<'_> {
    fn fault(&mut self, problem: Diagnostic) {
        if self.faults.len() < SHOWN_PROBLEMS { self.faults.push(problem) } else { self.more += 1 }
    }

    fn take(&mut self, record: &csv::StringRecord) {
        let line = record.position().map_or(0, csv::Position::line);
        let header = self.header;
        if record.len() != header.len() {
            let what = format!("it has {} fields where the first line names {}", record.len(), header.len());
            self.fault(Diagnostic::error(format!("{} line {line}", self.place), what, "correct or remove the line"));
            return;
        }
        for (index, (name, field)) in header.iter().zip(record).enumerate() {
            let place = || format!("{} line {line} column {} ({name})", self.place, index + 1);
            if index == self.label {
                if field.is_empty() {
                    self.fault(Diagnostic::error(place(), "the class is missing", "fill it in, or remove the line"));
                }
                self.names.push(field.to_owned());
                continue;
            }
            match field.parse::<f32>() {
                Ok(number) if number.is_finite() => self.numbers.push(number),
                _ => {
                    let what = match field {
                        "" => "the number is missing".to_owned(),
                        field => format!("{field:?} is not a finite number"),
                    };
                    self.fault(Diagnostic::error(place(), what, "write a number, or remove the line"));
                }
            }
        }
    }

    fn finish(mut self, settings: &TableSettings) -> Result<Dataset, Vec<Diagnostic>> {
        let place = self.place;
        if self.names.len() < 2 && self.faults.is_empty() {
            let what = format!("it has {} examples", self.names.len());
            self.fault(Diagnostic::error(place, what, "give at least two: one to learn from, one to test with"));
        }
        let classes = self.classes(settings);
        if self.more > 0 {
            let what = format!("{} more problems like these", self.more);
            self.faults.push(Diagnostic::error(place, what, "correct those above first"));
        }
        match classes {
            Some((classes, labels)) if self.faults.is_empty() => {
                let features = self.header.len() - 1;
                Ok(Dataset { classes, features, labels, rows: Rows::Table(self.numbers) })
            }
            _ => Err(self.faults),
        }
    }

    /// The names of the classes, and the label of each row.
    fn classes(&mut self, settings: &TableSettings) -> Option<(Vec<String>, Vec<u32>)> {
        let found: BTreeSet<&str> = self.names.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        let column = self.header[self.label].to_owned();
        let classes = match &settings.classes {
            Some(classes) => {
                let unknown: Vec<&str> =
                    found.into_iter().filter(|name| !classes.iter().any(|class| class == name)).collect();
                if !unknown.is_empty() {
                    let shown: Vec<&str> = unknown.iter().copied().take(SHOWN_PROBLEMS).collect();
                    let what = format!("{} of {column} in {} are not among them", shown.join(", "), self.place);
                    self.fault(Diagnostic::error("classes", what, "name all classes, as they are written in the file"));
                    return None;
                }
                classes.clone()
            }
            None => in_order(found),
        };
        if !(2..=MAX_CLASSES).contains(&classes.len()) {
            if self.faults.is_empty() {
                let what = format!("the column {column} has {} different values", classes.len());
                let advice = format!("choose a column of 2 to {MAX_CLASSES} classes with the setting label");
                self.fault(Diagnostic::error(self.place, what, advice));
            }
            return None;
        }
        let positions: HashMap<&str, u32> = classes.iter().map(String::as_str).zip(0..).collect();
        let labels = self.names.iter().map(|name| positions.get(name.as_str()).copied().unwrap_or_default()).collect();
        Some((classes.clone(), labels))
    }
}

/// Sorted by value if all are numbers, otherwise alphabetically.
fn in_order(names: BTreeSet<&str>) -> Vec<String> {
    let mut names: Vec<&str> = names.into_iter().collect();
    let numbers: Option<Vec<f64>> =
        names.iter().map(|name| name.parse().ok().filter(|number: &f64| number.is_finite())).collect();
    if numbers.is_some() {
        let value = |name: &str| name.parse::<f64>().expect("all are numbers");
        names.sort_by(|a, b| value(a).total_cmp(&value(b)));
    }
    names.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str, settings: &TableSettings) -> Vec<String> {
        parse("t.csv", text.as_bytes(), settings).unwrap_err().iter().map(Diagnostic::to_string).collect()
    }

    #[test]
    fn a_table() {
        let text = "\u{feff}age, ill ,\"sugar, fasting\"\r\n1,yes,2\r\n\r\n3.5,\"no\",-4e1\r\n5,yes,6\n";
        let settings = TableSettings { label: Some("ill".into()), classes: None };
        let table = parse("t.csv", text.as_bytes(), &settings).unwrap();
        assert_eq!(table.classes, ["no", "yes"]);
        assert_eq!((table.features, &table.labels[..]), (2, &[1, 0, 1][..]));
        assert_eq!(table.rows, Rows::Table(vec![1.0, 2.0, 3.5, -40.0, 5.0, 6.0]));
    }

    #[test]
    fn the_order_of_classes_does_not_depend_on_the_rows() {
        let table = parse("t.csv", b"x,y\n1,10\n2,9\n3,10", &TableSettings::default()).unwrap();
        assert_eq!((table.classes, table.labels), (vec!["9".to_owned(), "10".to_owned()], vec![1, 0, 1]));
        let settings = TableSettings { classes: Some(vec!["b".into(), "c".into(), "a".into()]), label: None };
        let table = parse("t.csv", b"x,y\n1,a\n2,b", &settings).unwrap();
        assert_eq!((table.classes.len(), table.labels), (3, vec![2, 0]));
        assert_eq!(
            problems("x,y\n1,a\n2,z", &settings),
            ["classes: z of y in t.csv are not among them (to do: name all classes, as they are written in the file)"]
        );
    }

    #[test]
    fn all_bad_rows_are_reported_with_line_and_column() {
        let text = "age,ill\n1,a\nx,b\n2\n,c\ninf,\n";
        assert_eq!(
            problems(text, &TableSettings::default()),
            [
                "t.csv line 3 column 1 (age): \"x\" is not a finite number (to do: write a number, or remove the line)",
                "t.csv line 4: it has 1 fields where the first line names 2 (to do: correct or remove the line)",
                "t.csv line 5 column 1 (age): the number is missing (to do: write a number, or remove the line)",
                "t.csv line 6 column 1 (age): \"inf\" is not a finite number (to do: write a number, or remove the line)",
                "t.csv line 6 column 2 (ill): the class is missing (to do: fill it in, or remove the line)",
            ]
        );
        let many = format!("age,ill\n{}", "x,a\n".repeat(50));
        let all = problems(&many, &TableSettings::default());
        assert_eq!(all.len(), SHOWN_PROBLEMS + 1);
        assert_eq!(all[SHOWN_PROBLEMS], "t.csv: 30 more problems like these (to do: correct those above first)");
    }

    #[test]
    fn tables_without_enough_classes_or_examples_are_refused() {
        let sugar = TableSettings { label: Some("suger".into()), classes: None };
        assert_eq!(
            problems("age,sugar\n", &sugar),
            ["label: t.csv has no column \"suger\" (to do: did you mean sugar?)"]
        );
        for (text, what) in [
            ("", "names 0 columns"),
            ("a\n1", "names 1 columns"),
            ("a,b\n", "it has 0 examples"),
            ("a,b\n1,x\n", "it has 1 examples"),
            ("a,b\n1,x\n2,x\n", "has 1 different values"),
            ("a,a,b\n1,2,x\n2,3,y\n", "the column \"a\" appears twice"),
        ] {
            let all = problems(text, &TableSettings::default());
            assert!(all.len() == 1 && all[0].contains(what), "{all:?}");
        }
        let latin = parse("t.csv", b"a,b\n1,\xe4\n2,x\n3,y", &TableSettings::default()).unwrap_err();
        assert_eq!(latin[0].place, "t.csv line 2");
        assert!(read(Path::new("/nowhere/t.csv"), &TableSettings::default()).is_err());
    }
}
