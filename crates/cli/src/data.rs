//! `gradvine data`

use gradvine::{
    config::ConfigError,
    data::{self, Column, ColumnDescription, Description, Options},
};
use gradvine_report::aligned;
use gradvine_terminal::{print, print_json, show_reading};
use serde_json::json;

use super::Exit;

/// The arguments of `gradvine data`
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show what is in the columns of a CSV, Parquet or Arrow file, and draft a schema for an
    /// experiment
    Describe(DescribeArgs),
}

/// The arguments of `gradvine data describe`
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    gradvine data describe patients.csv --target diagnosis\n  \
    gradvine data describe patients.csv --target diagnosis --toml > experiment.toml\n  \
    gradvine train experiment.toml\n\n\
    Nothing is sent anywhere. The draft is to be read and corrected: it lists the values of \
    categories, which all\nnodes of a run must list alike.")]
struct DescribeArgs {
    /// A CSV file (also .gz), a Parquet or Arrow file, or a folder of such files
    file: String,
    /// The column to predict, by name or position [default: the last]
    #[arg(long, allow_hyphen_values = true)]
    target: Option<String>,
    /// Print only the draft: an experiment that can be run
    #[arg(long, conflicts_with = "json")]
    toml: bool,
    /// Print an object
    #[arg(long)]
    json: bool,
}

/// Classes or categories that a table shows.
const SHOWN: usize = 4;

/// The largest class is this many times as frequent as the least one where the draft warns.
const UNBALANCED: u64 = 5;

/// The other sections of a draft: it can be run at once.
const REST: &str = "
[rule]
kind = \"choco\"

[compressor]
kind = \"min-max\"

[optimizer]
step = 0.1
batch = 32

# For a run on this machine: the nodes of a deployment have a file for their topology.
[topology]
file = \"ring:4\"
";

/// Runs `gradvine data`.
pub fn run(args: &Args) -> Result<(), Exit> {
    let Command::Describe(args) = &args.command;
    describe(args)
}

fn describe(args: &DescribeArgs) -> Result<(), Exit> {
    let options = Options { target: args.target.clone(), ..Options::default() };
    show_reading();
    let described = data::describe(&args.file, &options).map_err(named_by_argument)?;
    if args.json {
        return Ok(print_json(&to_json(&described))?);
    }
    let draft = draft(args, &described);
    if args.toml {
        return Ok(print(&draft)?);
    }
    Ok(print(&format!("{}\n{}\n{draft}", table(&described), target(&described)))?)
}

fn named_by_argument(error: ConfigError) -> ConfigError {
    let rename =
        |text: &str| text.replace("data.target", "--target").replace("data.source", "FILE");
    ConfigError { place: rename(&error.place), problem: rename(&error.problem), ..error }
}

/// One line a column.
fn table(described: &Description) -> String {
    let heading = ["column", "kind", "missing", "least", "mean", "greatest", "values", "remark"];
    let mut rows = vec![heading.map(String::from)];
    for (at, column) in described.columns.iter().enumerate() {
        let (kind, remark) = column.guess(described.rows);
        let kind = if at == described.target { "target" } else { kind.name() };
        let range = column.range.filter(|_| column.numbers + column.missing == described.rows);
        let [least, mean, greatest] = match range {
            Some((least, mean, greatest)) => [least, mean, greatest].map(number),
            None => Default::default(),
        };
        let missing = match column.missing {
            0 => String::new(),
            count => format!("{count} ({:.1}%)", 100.0 * count as f64 / described.rows as f64),
        };
        let remark = remark.filter(|_| at != described.target).unwrap_or_default();
        let values = values(column);
        rows.push([
            column.name.clone(),
            kind.into(),
            missing,
            least,
            mean,
            greatest,
            values,
            remark,
        ]);
    }
    let rows_word = if described.rows == 1 { "row" } else { "rows" };
    let left = [0, 1, 6, 7];
    format!("{} {rows_word}\n\n{}", described.rows, aligned(&rows, &left))
}

/// The most frequent values of a column whose values repeat.
fn values(column: &ColumnDescription) -> String {
    if column.unread.is_some() {
        return String::new();
    }
    let Some(values) = &column.values else { return "more than 4096".into() };
    let total: u64 = values.values().sum();
    let many = column.numbers == total || column.dates == total;
    if many && values.len() > SHOWN || values.len() as u64 == total {
        return format!("{} different", values.len());
    }
    let mut sorted: Vec<(&String, &u64)> = values.iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let shown: Vec<String> = sorted
        .iter()
        .take(SHOWN)
        .map(|(value, count)| format!("{} ({count})", brief(value)))
        .collect();
    let more = sorted.len().saturating_sub(SHOWN);
    shown.join(", ") + &if more > 0 { format!(", {more} more") } else { String::new() }
}

fn brief(text: &str) -> String {
    let mut shown: String = text.chars().take(20).flat_map(char::escape_debug).collect();
    if text.chars().count() > 20 {
        shown += "..";
    }
    shown
}

fn number(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e7).contains(&value.abs()) {
        return format!("{value:.3e}");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// What the target is.
fn target(described: &Description) -> String {
    let column = &described.columns[described.target];
    let mut text = match described.classes() {
        Some(classes) => {
            let count = |class: &String| column.values.as_ref().map_or(0, |all| all[class]);
            let counts: Vec<u64> = classes.iter().map(count).collect();
            let each: Vec<String> = classes
                .iter()
                .zip(&counts)
                .take(20)
                .map(|(class, count)| format!("{} ({count})", brief(class)))
                .collect();
            let (most, least) = (counts.iter().max(), counts.iter().min());
            let mut text = format!(
                "target \"{}\": {} classes: {}{}\n",
                column.name,
                classes.len(),
                each.join(", "),
                if classes.len() > 20 { ", .." } else { "" }
            );
            if let (Some(most), Some(least)) = (most, least)
                && *most > UNBALANCED * *least
            {
                text += &format!(
                    "warning: the classes are unbalanced: the most frequent one has {most} rows, \
                     the least frequent one {least}\n"
                );
            }
            text
        }
        None => format!("target \"{}\": numbers\n", column.name),
    };
    if column.missing > 0 {
        text += &format!(
            "warning: {} rows have no target: a run refuses them, remove them\n",
            column.missing
        );
    }
    text
}

/// An experiment.
fn draft(args: &DescribeArgs, described: &Description) -> String {
    let quote = |text: &str| toml::Value::String(text.into()).to_string();
    let schema = described.schema();
    let mut text = String::from("[data]\n");
    text += &format!("source = {}\n", quote(&args.file));
    text += &format!("target = {}\n", quote(&described.columns[described.target].name));
    let classes = described.classes();
    if let Some(classes) = &classes {
        let names: Vec<String> = classes.iter().map(|name| quote(name)).collect();
        text += &format!("classes = [{}]\n", names.join(", "));
    }
    text += "standardize = true\nschema = [\n";
    for column in &schema.columns {
        text += &format!("    {},", entry(column));
        let of = described.columns.iter().find(|found| found.name == column.name);
        if let Some(remark) = of.and_then(|found| found.guess(described.rows).1) {
            text += &format!(" # {remark}");
        }
        text += "\n";
    }
    let kind = if classes.is_some() { "softmax" } else { "least-squares" };
    text += &format!("]\n\n[model]\nkind = \"{kind}\"\n");
    if let Ok(inputs) = schema.width() {
        text += &format!("inputs = {inputs}\n");
    }
    text += &format!("outputs = {}\n", classes.map_or(1, |classes| classes.len()));
    text + REST
}

/// An entry of a schema, on one line, its name first.
fn entry(column: &Column) -> String {
    let table = toml::Table::try_from(column).expect("a column serialises");
    let pairs = ["name", "kind", "values", "other", "missing"]
        .into_iter()
        .filter_map(|key| Some(format!("{key} = {}", table.get(key)?)));
    format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
}

fn to_json(described: &Description) -> serde_json::Value {
    let columns: Vec<serde_json::Value> = described
        .columns
        .iter()
        .map(|column| {
            let (kind, remark) = column.guess(described.rows);
            let values = column.values.as_ref().filter(|_| column.unread.is_none());
            json!({
                "name": column.name,
                "kind": kind,
                "missing": column.missing,
                "least": column.range.map(|range| range.0),
                "mean": column.range.map(|range| range.1),
                "greatest": column.range.map(|range| range.2),
                "different": values.map(std::collections::BTreeMap::len),
                "remark": remark,
            })
        })
        .collect();
    json!({
        "rows": described.rows,
        "target": described.columns[described.target].name,
        "classes": described.classes(),
        "columns": columns,
        "schema": described.schema(),
    })
}
