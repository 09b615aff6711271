//! Study files: the claim of a paper, the rows that test it, and the expected results.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use indexmap::IndexMap;
use serde::Deserialize;

use crate::{
    curves::Curve,
    expect::Expectation,
    figure::{Figure, Target},
    runs::{
        case::{Base, Case, check_constants},
        grid::Grid,
    },
};
use gradvine::{
    config::{self, ConfigError},
    experiment::picks,
};

/// The maximum number of rows of a study, so that an accidental product is noticed.
const MOST_ROWS: usize = 400;
/// The minimum number of seeds for means; the next is that for tuning.
pub const LEAST_SEEDS: u64 = 5;
/// The minimum number of seeds for tuning.
pub const LEAST_TUNING_SEEDS: u64 = 3;
/// The distance of the seeds of tuning from the first seed; the other seeds must end before.
pub const TUNING: u64 = 1000;

/// What a paper claims, the rows that try it, and what is expected of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// The file's name without `.toml`.
    #[serde(skip)]
    pub name: String,
    /// The path that it was read from.
    #[serde(skip)]
    pub path: PathBuf,
    /// Its title.
    pub title: String,
    /// What was published: authors, title, year.
    pub paper: String,
    /// What the paper claims.
    pub claim: String,
    /// The runs of this study, with the reasons.
    pub setting: String,
    /// Comments on the figures, in Markdown.
    #[serde(default)]
    pub notes: String,
    /// The experiment file that rows differ from.
    ///
    /// Accepts: the path of a file, relative to the study's folder; not together with
    /// `[experiment]`. Default: the experiment that `gradvine train` runs without a file.
    base: Option<String>,
    /// The experiment that rows differ from, instead of a file.
    ///
    /// Accepts: a table with the sections of an experiment file; not together with `base`.
    experiment: Option<toml::Table>,
    /// Settings of all rows.
    ///
    /// Accepts: a list of settings such as `"optimizer.step=0.1"`; `"rule=choco:gamma=0.3"`,
    /// `"compressor=min-max:bits=4"` and `"topology=ring:8"` are short for those of a section.
    #[serde(default)]
    set: Vec<String>,
    /// Whether its expectations stand on top of the list of studies.
    ///
    /// Default: `false`.
    #[serde(default)]
    pub headline: bool,
    /// Why the claim is not shown: the list of studies has this line, and there is no page.
    ///
    /// Accepts: text; only without rows, pictures and expectations.
    pub not_shown: Option<String>,
    /// A folder of data that is not shipped with the program.
    ///
    /// Accepts: a table `[needs]`.
    pub needs: Option<Needs>,
    /// How many seeds figures are means of. Required, except with `not_shown`.
    ///
    /// Accepts: a whole number from 5 to 1000, or 1 with `single`.
    #[serde(default)]
    pub seeds: u64,
    /// Why one seed is enough: nothing that is shown is random.
    ///
    /// Accepts: text; only with `seeds = 1` and rows without a grid.
    pub single: Option<String>,
    /// How many seeds settings are tuned on. They begin 1000 above `seed`, so that none is measured
    /// too.
    ///
    /// Accepts: a whole number from 3 to 1000. Default: 3.
    #[serde(default = "least_tuning_seeds")]
    pub tuning_seeds: u64,
    /// The first seed.
    ///
    /// Default: 1.
    #[serde(default = "one")]
    pub seed: u64,
    /// Values of keys from which the best are taken, for all rows that have no grid of their own.
    ///
    /// Accepts: a list of texts such as `"optimizer.step=0.05,0.1"`; keys that change together
    /// stand in one text, `"optimizer.local_steps=1,10; network.compute_ms=5,50"`, with as many
    /// values each.
    #[serde(default)]
    grid: Vec<String>,
    /// Whether the best of a grid is what reaches `rounds_to` first, instead of what ends with the
    /// least loss.
    ///
    /// Accepts: `true` or `false`; `true` only with `rounds_to`. Default: `false`.
    #[serde(default)]
    pub tune_to_target: bool,
    /// The most points of each grid, the best on the first seed of tuning, that run on its other
    /// seeds.
    ///
    /// Accepts: a whole number of 1 or more. Default: all within twice the best.
    pub finalists: Option<NonZeroUsize>,
    /// Whether runs end where they reach `rounds_to`.
    ///
    /// Accepts: `true` or `false`; `true` only with `rounds_to`. Default: `false`.
    #[serde(default)]
    pub stop_at_target: bool,
    /// Another value of the target's figure, at which runs end instead.
    ///
    /// Accepts: a number; only with `rounds_to`.
    pub stop_at: Option<f64>,
    /// The columns of the table.
    ///
    /// Accepts: a list of figures. Default: none.
    #[serde(default)]
    pub columns: Vec<Figure>,
    /// One more column: each row compared with this one, seed by seed.
    ///
    /// Accepts: a table `[against]`.
    pub against: Option<Against>,
    /// The target to which rounds, bytes and times are counted. Required where `rounds_to`,
    /// `payload_to`, `time_to` or `training_to` is asked for.
    ///
    /// Accepts: a table `[rounds_to]`.
    pub rounds_to: Option<Target>,
    /// Other values of the target's figure, to which times are counted in a second table.
    ///
    /// Accepts: a list of numbers; only with `rounds_to`. Default: none.
    #[serde(default)]
    pub also_to: Vec<f64>,
    /// The rows. Required, except with `not_shown`.
    ///
    /// Accepts: tables `[[row]]`, which make 1 to 400 rows of different names.
    #[serde(default)]
    row: Vec<RawRow>,
    /// What is drawn.
    ///
    /// Accepts: tables `[[picture]]`.
    #[serde(default)]
    pub picture: Vec<Picture>,
    /// What is expected.
    ///
    /// Accepts: tables `[[expect]]`.
    #[serde(default)]
    pub expect: Vec<Expectation>,
    /// The rows, with products expanded.
    #[serde(skip)]
    pub rows: Vec<(Case, Vec<Grid>)>,
}

/// `[[row]]`: one row, or with `over` one for each combination of its lists' values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    /// What the row is called.
    ///
    /// Accepts: text that no other row has; `{KEY}` in it stands for a value of `over`.
    name: String,
    /// Settings of this row, after those of all rows.
    ///
    /// Accepts: as `set` of all rows; `{KEY}` in it stands for a value of `over`.
    #[serde(default)]
    set: Vec<String>,
    /// Values of keys from which the best are taken.
    ///
    /// Accepts: as `grid` of all rows; an empty list is no grid. Default: `grid` of all rows.
    grid: Option<Vec<String>>,
    /// Lists of values, by names of one's own.
    ///
    /// Accepts: a table `[row.over]` of lists; each name stands as `{KEY}` in the row's name, in a
    /// setting or in a grid.
    #[serde(default)]
    over: IndexMap<String, Vec<toml::Value>>,
}

/// `[needs]`: files that are not shipped. `{NAME}` in settings stands for their folder. Where they
/// are not there, the study is skipped.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Needs {
    /// The folder's name on the command line.
    pub name: String,
    /// What must be in it.
    ///
    /// Accepts: a list of file names.
    pub files: Vec<String>,
}

/// `[against]`: the row and the figure that all rows are compared with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Against {
    /// The row.
    ///
    /// Accepts: the name of a row.
    pub row: String,
    /// The figure.
    pub metric: Figure,
}

/// `[[picture]]`: a chart of some or all rows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Picture {
    /// The words above it.
    pub title: String,
    /// The words below the title: what it shows.
    #[serde(default)]
    pub words: String,
    /// The figure along the horizontal axis.
    ///
    /// Accepts: `"rounds"`, `"time"`, `"payload"` or `"wire"`.
    x: Figure,
    /// The figure along the vertical axis.
    y: Figure,
    /// Which rows it shows.
    ///
    /// Accepts: a list of names of rows. Default: all rows.
    #[serde(default)]
    pub rows: Vec<String>,
}

fn one() -> u64 {
    1
}

fn least_tuning_seeds() -> u64 {
    LEAST_TUNING_SEEDS
}

impl Picture {
    /// The axes of the curve.
    pub fn curve(&self) -> Curve {
        Curve { x: self.x, y: self.y }
    }
}

impl Study {
    /// Reads a study file.
    ///
    /// # Errors
    /// If it cannot be read or is invalid; the error names the line or the row.
    pub fn load(path: &Path) -> Result<Study, ConfigError> {
        let fail = |error: ConfigError| error.within(path.display());
        let text = gradvine::inputs::read_to_string(path)
            .map_err(|error| fail(ConfigError::at("study", format!("cannot be read: {error}"))))?;
        let mut study: Study =
            toml::from_str(&text).map_err(|error| fail(config::in_document(&text, &error)))?;
        study.name =
            path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        study.path = path.to_path_buf();
        study.rows = study.multiplied().map_err(fail)?;
        study.check().map_err(fail)?;
        Ok(study)
    }

    fn base(&self) -> Result<Base, ConfigError> {
        let folder = self.path.parent().map(Path::to_path_buf).unwrap_or_default();
        match (&self.base, &self.experiment) {
            (Some(_), Some(_)) => {
                Err(ConfigError::at("base", "give a base or an [experiment], not both"))
            }
            (Some(base), None) => Ok(Base::File(folder.join(base))),
            (None, Some(table)) => {
                let text = toml::to_string(table).expect("a table that was read can be written");
                Ok(Base::Text { text, origin: self.path.display().to_string(), folder })
            }
            (None, None) => Ok(Base::Default),
        }
    }

    fn multiplied(&self) -> Result<Vec<(Case, Vec<Grid>)>, ConfigError> {
        let base = self.base()?;
        let mut rows = Vec::new();
        for raw in &self.row {
            check_products(raw, self.grid.iter().chain(&self.set))?;
            for values in products(&raw.over) {
                let fill = |text: &String| {
                    values.iter().fold(text.clone(), |text, (key, value)| {
                        text.replace(&format!("{{{key}}}"), value)
                    })
                };
                let place = format!("row \"{}\"", fill(&raw.name));
                let mut sets = Vec::new();
                for set in self.set.iter().chain(&raw.set) {
                    let more = spelled_out(&place, &fill(set))?;
                    replaced(&mut sets, &more);
                    sets.extend(more);
                }
                let grids = raw.grid.as_ref().unwrap_or(&self.grid);
                let grids = grids
                    .iter()
                    .map(|grid| Grid::parse(&place, &fill(grid)))
                    .collect::<Result<_, _>>()?;
                let case = Case { name: fill(&raw.name), base: base.clone(), sets };
                let in_row = |error: ConfigError| {
                    let at = format!("{place}: {}", error.place);
                    error.with_place(at)
                };
                case.experiment(&[])
                    .and_then(|experiment| check_constants(&experiment))
                    .map_err(in_row)?;
                rows.push((case, grids));
            }
        }
        Ok(rows)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let names: Vec<&str> = self.rows.iter().map(|(case, _)| case.name.as_str()).collect();
        if self.not_shown.is_some() {
            let rows = names.len() + self.expect.len() + self.picture.len();
            let problem = "a claim that is not shown has no rows, pictures or expectations";
            return if rows == 0 { Ok(()) } else { Err(ConfigError::at("not_shown", problem)) };
        }
        if names.is_empty() || names.len() > MOST_ROWS {
            return Err(ConfigError::new(
                "row",
                names.len(),
                format!("expected 1 to {MOST_ROWS} rows"),
            ));
        }
        if let Some(twice) = names
            .iter()
            .enumerate()
            .find_map(|(index, name)| names[..index].contains(name).then_some(name))
        {
            return Err(ConfigError::new("row", format!("\"{twice}\""), "two rows have this name"));
        }
        self.check_seeds()?;
        if let Some(against) =
            self.against.as_ref().filter(|against| !names.contains(&against.row.as_str()))
        {
            let problem = format!("there is no such row; there are {}", names.join("; "));
            return Err(ConfigError::new("against", format!("\"{}\"", against.row), problem));
        }
        for (index, picture) in self.picture.iter().enumerate() {
            let place = format!("picture {}", index + 1);
            if !matches!(picture.x, Figure::Rounds | Figure::Time | Figure::Payload | Figure::Wire)
            {
                let problem = "expected rounds, time, payload or wire";
                return Err(ConfigError::new(format!("{place}, x"), picture.x.name(), problem));
            }
            if let Some(row) = picture.rows.iter().find(|row| !names.contains(&row.as_str())) {
                let problem = format!("there is no such row; there are {}", names.join("; "));
                return Err(ConfigError::new(place, format!("\"{row}\""), problem));
            }
        }
        let against = self.against.iter().map(|against| &against.metric);
        let expected = self.expect.iter().filter_map(|expect| expect.metric.as_ref());
        let asked = self.columns.iter().chain(against).chain(expected);
        let other = self.stop_at.is_some() || !self.also_to.is_empty();
        let to_target = self.tune_to_target || self.stop_at_target || other;
        if self.rounds_to.is_none()
            && (to_target || asked.into_iter().any(|figure| figure.is_to_target()))
        {
            return Err(ConfigError::at(
                "rounds_to",
                "is missing: rounds_to = { metric = \"train_loss\", value = 0.1 }",
            ));
        }
        for (index, expect) in self.expect.iter().enumerate() {
            expect.check(&format!("expect {}", index + 1), &names)?;
        }
        Ok(())
    }

    fn check_seeds(&self) -> Result<(), ConfigError> {
        if let Some(why) = &self.single {
            if self.seeds != 1 || self.rows.iter().any(|(_, grids)| !grids.is_empty()) {
                let problem =
                    "belongs to seeds = 1 and rows without a grid: leave it out, or these";
                return Err(ConfigError::new("single", format!("\"{}\"", why.trim()), problem));
            }
            return Ok(());
        }
        if !(LEAST_SEEDS..=TUNING).contains(&self.seeds) {
            let problem = format!(
                "expected a whole number from {LEAST_SEEDS} to {TUNING}, or 1 with single = \"why \
                 one seed is enough\""
            );
            return Err(ConfigError::new("seeds", self.seeds, problem));
        }
        if !(LEAST_TUNING_SEEDS..=TUNING).contains(&self.tuning_seeds) {
            let problem = format!("expected a whole number from {LEAST_TUNING_SEEDS} to {TUNING}");
            return Err(ConfigError::new("tuning_seeds", self.tuning_seeds, problem));
        }
        Ok(())
    }

    /// The seeds of the means.
    pub fn measured(&self) -> Vec<u64> {
        (self.seed..self.seed + self.seeds).collect()
    }

    /// The seeds of tuning: different from the others.
    pub fn tuned_on(&self) -> Vec<u64> {
        (self.seed + TUNING..self.seed + TUNING + self.tuning_seeds).collect()
    }

    /// Sets the folder of the data that it needs.
    pub fn fill(&mut self, folder: &Path) {
        let Some(needs) = &self.needs else { return };
        let (name, folder) = (format!("{{{}}}", needs.name), folder.display().to_string());
        for (case, _) in &mut self.rows {
            if let Base::Text { text, .. } = &mut case.base {
                let mut table: toml::Table =
                    toml::from_str(text).expect("it was written from a table");
                table.iter_mut().for_each(|(_, value)| put(value, &name, &folder));
                *text = toml::to_string(&table).expect("a table that was read can be written");
            }
            case.sets.iter_mut().for_each(|set| *set = set.replace(&name, &folder));
        }
    }

    /// Whether any figure needs the least value of f.
    pub fn wants_optimum(&self) -> bool {
        let against = self.against.iter().map(|against| &against.metric);
        let shown =
            self.columns.iter().chain(against).chain(self.picture.iter().map(|picture| &picture.y));
        let expected = self.expect.iter().filter_map(|expect| expect.metric.as_ref());
        let target = self.rounds_to.iter().map(|target| &target.metric);
        shown.chain(expected).chain(target).any(|figure| *figure == Figure::Excess)
    }

    /// Shortens the study for a first look: a tenth of the rounds, one seed, no tuning.
    ///
    /// # Errors
    /// If a row's settings are wrong.
    pub fn shorten(&mut self) -> Result<(), ConfigError> {
        (self.seeds, self.tuning_seeds) = (1, 0);
        for (case, grids) in &mut self.rows {
            grids.clear();
            let run = case.experiment(&[])?.run;
            case.sets.push(format!("run.rounds={}", (run.rounds / 10).max(1)));
            case.sets.push(format!("run.evaluate_every={}", (run.evaluate_every / 10).max(1)));
        }
        Ok(())
    }
}

/// A list of `over` that no text of the row uses has no effect, so it is refused as a mistake.
fn check_products<'a>(
    raw: &'a RawRow,
    common: impl Iterator<Item = &'a String>,
) -> Result<(), ConfigError> {
    let own = raw.set.iter().chain(raw.grid.iter().flatten()).chain([&raw.name]);
    let texts: Vec<&String> = own.chain(common).collect();
    match raw.over.keys().find(|key| !texts.iter().any(|text| text.contains(&format!("{{{key}}}"))))
    {
        None => Ok(()),
        Some(key) => {
            let problem = format!("no name, setting or grid of this row has {{{key}}} in it");
            Err(ConfigError::at(format!("row \"{}\": over.{key}", raw.name), problem))
        }
    }
}

/// Expands `rule=choco:gamma=0.3`, `compressor=...` and `topology=...` into the settings of a
/// section.
fn spelled_out(place: &str, set: &str) -> Result<Vec<String>, ConfigError> {
    let Some((section @ ("rule" | "compressor" | "topology"), value)) = set.split_once('=') else {
        return Ok(vec![set.to_string()]);
    };
    if section == "topology" {
        return Ok(vec![format!("topology.file={}", toml::Value::from(value))]);
    }
    let found = picks(place, value)?;
    match found.as_slice() {
        [pick] => Ok(pick.sets(section)),
        _ => Err(ConfigError::new(
            place,
            format!("\"{set}\""),
            "expected one name, with constants after colons",
        )),
    }
}

/// Removes earlier settings of a section whose kind is set again: its constants belong to the other
/// kind.
fn replaced(sets: &mut Vec<String>, more: &[String]) {
    for section in ["rule.", "compressor."] {
        if more.iter().any(|set| set.starts_with(&format!("{section}kind="))) {
            sets.retain(|set| !set.starts_with(section));
        }
    }
}

/// Replaces a name in all texts of a value.
fn put(value: &mut toml::Value, name: &str, by: &str) {
    match value {
        toml::Value::String(text) => *text = text.replace(name, by),
        toml::Value::Table(table) => table.iter_mut().for_each(|(_, value)| put(value, name, by)),
        toml::Value::Array(values) => values.iter_mut().for_each(|value| put(value, name, by)),
        _ => {}
    }
}

/// All combinations of the lists' values, the first list slowest; a single empty one if there are
/// no lists.
fn products(over: &IndexMap<String, Vec<toml::Value>>) -> Vec<Vec<(String, String)>> {
    let mut all = vec![Vec::new()];
    for (key, values) in over {
        let plain =
            |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), String::from);
        let with = |one: &Vec<(String, String)>, value| {
            one.iter().cloned().chain([(key.clone(), plain(value))]).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(|one| values.iter().map(move |value| with(one, value))).collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "title='t'\npaper='p'\nclaim='c'\nsetting='s'\nseeds=5\ncolumns=['train_loss']\n";

    fn load(text: &str) -> Result<Study, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some-study.toml");
        std::fs::write(&path, format!("{HEAD}{text}")).unwrap();
        Study::load(&path)
            .map_err(|error| error.to_string().replace(&path.display().to_string(), "FILE"))
    }

    #[test]
    fn products_fill_names_and_settings() {
        let text = "set=['run.rounds=5']\ngrid=['optimizer.step=0.1,0.2']\n[[row]]\nname='{rule}, \
                    step {step}'\nset=['rule={rule}', 'optimizer.step={step}']\n\
                    [row.over]\nrule=['naive', 'choco:gamma=0.3']\nstep=[0.1, \
                    0.2]\n[[row]]\nname='plain'\ngrid=[]\nset=['topology=ring:4']\n";
        let study = load(text).unwrap();
        let names: Vec<&str> = study.rows.iter().map(|(case, _)| case.name.as_str()).collect();
        let expected = [
            "naive, step 0.1",
            "naive, step 0.2",
            "choco:gamma=0.3, step 0.1",
            "choco:gamma=0.3, step 0.2",
            "plain",
        ];
        assert_eq!(names, expected);
        let sets = ["run.rounds=5", "rule.kind=choco", "rule.gamma=0.3", "optimizer.step=0.2"];
        assert_eq!(study.rows[3].0.sets, sets);
        assert_eq!(
            (study.rows[0].1.len(), study.rows[4].1.len(), study.name.as_str()),
            (1, 0, "some-study")
        );
        assert_eq!(study.rows[4].0.sets[1], "topology.file=\"ring:4\"");
    }

    #[test]
    fn a_row_s_own_kind_takes_the_constants_of_the_common_one_away() {
        let text = "set=['compressor=min-max:bits=4', \
                    'rule.kind=dcd']\n[[row]]\nname='a'\nset=['compressor=sign', \
                    'rule.kind=choco', 'rule.gamma=0.1']\n";
        let study = load(text).unwrap();
        assert_eq!(
            study.rows[0].0.sets,
            ["compressor.kind=sign", "rule.kind=choco", "rule.gamma=0.1"]
        );
    }

    #[test]
    fn figures_are_means_over_enough_seeds_of_their_own() {
        let error = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("s.toml");
            let head = HEAD.replace("seeds=5\n", text);
            std::fs::write(
                &path,
                format!("{head}[[row]]\nname='a'\ngrid=['optimizer.step=0.1,0.2']\n"),
            )
            .unwrap();
            Study::load(&path)
                .map_err(|error| error.to_string())
                .map(|study| (study.measured(), study.tuned_on()))
        };
        let (measured, tuned_on) = error("seeds=5\n").unwrap();
        assert_eq!((measured, tuned_on), (vec![1, 2, 3, 4, 5], vec![1001, 1002, 1003]));
        let few = error("seeds=4\n").unwrap_err();
        assert!(
            few.ends_with(
                "seeds = 4: expected a whole number from 5 to 1000, or 1 with single = \"why one \
                 seed is enough\""
            ),
            "{few}"
        );
        assert!(error("seeds=1001\n").is_err(), "the seeds of tuning begin there");
        let few = error("seeds=5\ntuning_seeds=2\n").unwrap_err();
        assert!(few.ends_with("tuning_seeds = 2: expected a whole number from 3 to 1000"), "{few}");
        let single = error("seeds=1\nsingle='only time'\n").unwrap_err();
        assert!(single.contains("belongs to seeds = 1 and rows without a grid"), "{single}");
    }

    #[test]
    fn data_that_is_not_shipped_has_a_place() {
        let text = "needs={ name='some', files=['a.csv'] }\nset=['data.labels={some}/b']\n\
                    [experiment.data]\nsource='{some}/a.csv'\n[[row]]\nname='a'\n";
        let mut study = load(text).unwrap();
        study.fill(Path::new("/there \\ or"));
        let experiment = study.rows[0].0.experiment(&[]).unwrap();
        assert_eq!(experiment.data.source, "/there \\ or/a.csv");
        assert_eq!(experiment.data.labels.as_deref(), Some("/there \\ or/b"));
    }

    #[test]
    fn claims_that_are_not_tested_have_no_rows() {
        let text = "not_shown='needs a GPU'\n";
        assert!(load(text).unwrap().rows.is_empty());
        assert!(
            load(&format!("{text}[[row]]\nname='a'\n"))
                .unwrap_err()
                .contains("not_shown: a claim that is not shown has no rows")
        );
    }

    #[test]
    fn wrong_files_name_the_place() {
        let row = "[[row]]\nname='a'\n";
        assert!(load("").unwrap_err().contains("row = 0: expected 1 to 400 rows"));
        assert!(
            load("titel='x'\n[[row]]\nname='a'\n")
                .unwrap_err()
                .starts_with("FILE: line 7, titel = 'x': unknown field `titel`")
        );
        assert_eq!(load(&row.repeat(2)).unwrap_err(), "FILE: row = \"a\": two rows have this name");
        let expect = format!("{row}[[expect]]\nrow='b'\nstatus='ok'\nwords='w'\n");
        assert!(
            load(&expect).unwrap_err().starts_with("FILE: expect 1 = \"b\": there is no such row")
        );
        let count = format!("{row}[[expect]]\nrow='a'\nmetric='rounds_to'\nbelow=3\nwords='w'\n");
        assert!(load(&count).unwrap_err().starts_with("FILE: rounds_to: is missing"));
        let picture = format!("{row}[[picture]]\ntitle='p'\nx='consensus'\ny='train_loss'\n");
        assert!(load(&picture).unwrap_err().contains("picture 1, x = consensus: expected rounds"));
        assert!(
            load(&format!("grid=['step=1']\n{row}"))
                .unwrap_err()
                .contains("row \"a\" = \"step=1\": expected section")
        );
        assert!(load(&format!("base='x'\n[experiment]\n{row}")).unwrap_err().contains("not both"));
    }
}
