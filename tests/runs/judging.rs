//! The figures in the summary of a run against those of plain code, for each node and for all.

use std::{fs, path::Path};

use gradvine::{
    drive::{Ended, NoopObserver},
    experiment::Experiment,
    learn::Model,
    mixing::Topology,
    run::{Design, Figures, NodeFile, Single, Summary, record::Closing},
    sim,
    units::NodeId,
};

/// Rows of a site: three classes of which the last is rare, each site a little apart.
fn rows(site: usize, count: usize) -> String {
    let row = |i: usize| {
        let class = if i % 10 == 9 { 2 } else { usize::from(i.is_multiple_of(3)) };
        let noise = |k: usize| ((i * k + 5 * site) % 17) as f64 / 17.0;
        let shift = 0.2 * site as f64;
        format!("{},{},{class}\n", noise(7) + 0.6 * class as f64, noise(11) - shift)
    };
    "x,y,class\n".to_string() + &(0..count).map(row).collect::<String>()
}

struct Site {
    single: Single,
    /// Its model after the rounds.
    own: Vec<f32>,
}

/// Runs nodes with files of their own in the simulator.
fn run(
    folder: &Path,
    sites: &[(String, Option<String>)],
    settings: &str,
) -> (Vec<Site>, Vec<Ended>) {
    let text = format!(
        "run.rounds = 30\nrule.kind = 'd-psgd'\n[model]\ninputs = 2\n{settings}\n[topology]\n\
         file = 'complete:{}'",
        sites.len()
    );
    let topology = || Topology::parse(&format!("complete:{}", sites.len()), 1).unwrap();
    let mut singles: Vec<Single> = (sites.iter().enumerate())
        .map(|(node, (data, test))| {
            let write = |name: &str, text: &str| {
                let path = folder.join(format!("{name}{node}.csv"));
                fs::write(&path, text).unwrap();
                path.display().to_string()
            };
            let file = NodeFile {
                data: Some(write("data", data)),
                test: test.as_ref().map(|test| write("test", test)),
                ..NodeFile::default()
            };
            let experiment = Experiment::parse(&text, &[]).unwrap();
            Single::new(&file, experiment, topology(), NodeId::from(node)).unwrap()
        })
        .collect();
    let specs = singles.iter_mut().map(|single| single.spec.take().unwrap()).collect();
    let ended = sim::run(specs, &mut NoopObserver).unwrap();
    let own = ended.iter().map(|ended| ended.model.clone());
    let sites = singles.into_iter().zip(own).map(|(single, own)| Site { single, own }).collect();
    (sites, ended)
}

fn summary(design: &Design, ended: &[Ended]) -> Summary {
    let all: Vec<Summary> =
        ended.iter().map(|ended| Summary::new(design, &ended.records).unwrap()).collect();
    assert!(all.iter().all(|one| *one == all[0]), "all nodes write the same summary");
    all[0].clone()
}

/// A model's probabilities of test rows, and their classes.
type Predicted = Vec<(Vec<f64>, usize)>;

fn predicted(model: &Model, x: &[f32], single: &Single) -> Predicted {
    let test = single.test.as_ref().unwrap().ready().unwrap();
    let probabilities = model.predict(x, test.features.view()).unwrap();
    let row = |row: ndarray::ArrayView1<'_, f32>| row.iter().map(|&p| f64::from(p)).collect();
    let labels = test.labels().unwrap().iter().map(|&label| label as usize);
    probabilities.rows().into_iter().map(row).zip(labels).collect()
}

fn close(value: Option<f64>, expected: f64, what: &str) {
    let value = value.unwrap_or_else(|| panic!("{what} is missing"));
    assert!((value - expected).abs() < 1e-6, "{what}: {value} instead of {expected}");
}

/// Compares figures with those of plain code.
fn check(figures: &Figures, rows: &Predicted, most: usize) {
    let count = rows.len() as f64;
    let best = |p: &[f64]| (0..3).rev().max_by(|&a, &b| p[a].total_cmp(&p[b])).unwrap();
    let mut confusion = vec![vec![0u64; 3]; 3];
    let (mut loss, mut bins) = (0.0, [(0.0f64, 0.0f64); 10]);
    for (p, label) in rows {
        confusion[*label][best(p)] += 1;
        loss -= p[*label].ln();
        let bin = &mut bins[((p[best(p)] * 10.0) as usize).min(9)];
        *bin = (bin.0 + p[best(p)], bin.1 + f64::from(u8::from(best(p) == *label)));
    }
    assert_eq!((figures.rows, &figures.confusion), (rows.len() as u64, &confusion));
    close(Some(figures.loss), loss / count, "loss");
    let right: u64 = (0..3).map(|class| confusion[class][class]).sum();
    close(figures.accuracy, right as f64 / count, "accuracy");
    let distance: f64 = bins.iter().map(|(sum, right)| (sum - right).abs()).sum();
    close(figures.calibration_error, distance / count, "calibration error");
    let of_class = |class: usize| rows.iter().filter(|(_, label)| *label == class).count();
    let baseline = figures.baseline.as_ref().unwrap();
    assert_eq!(baseline.class, most.to_string());
    close(Some(baseline.accuracy), of_class(most) as f64 / count, "baseline");
    let (mut recalls, mut areas) = (Vec::new(), Vec::new());
    for (class, figures) in figures.classes.iter().enumerate() {
        let found: u64 = confusion.iter().map(|line| line[class]).sum();
        assert_eq!((figures.rows, figures.predicted), (of_class(class) as u64, found));
        let right = confusion[class][class] as f64;
        if found > 0 {
            close(figures.precision, right / found as f64, "precision");
        }
        if of_class(class) == 0 {
            assert_eq!((figures.recall, figures.auc), (None, None));
            continue;
        }
        recalls.push(right / of_class(class) as f64);
        close(figures.recall, recalls[recalls.len() - 1], "recall");
        let bin = |p: &[f64]| (p[class].sqrt().asin() * 2.0 / std::f64::consts::PI * 256.0) as u32;
        let (mut won, mut pairs) = (0.0, 0.0);
        for (a, _) in rows.iter().filter(|(_, label)| *label == class) {
            for (b, _) in rows.iter().filter(|(_, label)| *label != class) {
                pairs += 1.0;
                won += f64::from(u8::from(bin(a) > bin(b)));
                won += 0.5 * f64::from(u8::from(bin(a) == bin(b)));
            }
        }
        areas.push(won / pairs);
        close(figures.auc, won / pairs, "area");
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    close(figures.balanced_accuracy, mean(&recalls), "balanced accuracy");
    close(figures.auc, mean(&areas), "mean area");
}

#[test]
fn figures_of_each_node_and_of_all_follow_from_the_predictions() {
    let folder = tempfile::tempdir().unwrap();
    // The last site has a share of its own rows for tests, the others a file.
    let sites =
        [(rows(0, 60), Some(rows(3, 41))), (rows(1, 90), Some(rows(4, 37))), (rows(2, 80), None)];
    let (sites, ended) = run(folder.path(), &sites, "kind = 'softmax'\noutputs = 3");
    let summary = summary(&sites[0].single.design, &ended);
    // Class 0 has six rows of ten.
    let (model, mean) = (&sites[0].single.model, &ended[0].mean);
    let mut all = Predicted::new();
    for (site, part) in sites.iter().zip(summary.participation.values()) {
        check(part.test.as_ref().unwrap(), &predicted(model, &site.own, &site.single), 0);
        let of_mean = predicted(model, mean, &site.single);
        check(part.test_of_mean.as_ref().unwrap(), &of_mean, 0);
        all.extend(of_mean);
    }
    check(summary.outcome.test.as_ref().unwrap(), &all, 0);
    assert!(summary.warnings.iter().any(|line| line.contains("the classes are not balanced")));
    let bytes: Vec<usize> = ended[0].records.iter().map(Vec::len).collect();
    assert!(bytes.iter().all(|bytes| *bytes < 4000), "{bytes:?}");
}

#[test]
fn rows_that_all_nodes_test_on_count_once() {
    let folder = tempfile::tempdir().unwrap();
    let same = || Some(rows(3, 41));
    let sites = [(rows(0, 60), same()), (rows(1, 90), same())];
    let (sites, ended) = run(folder.path(), &sites, "kind = 'softmax'\noutputs = 3");
    let summary = summary(&sites[0].single.design, &ended);
    let of_mean = predicted(&sites[0].single.model, &ended[0].mean, &sites[0].single);
    check(summary.outcome.test.as_ref().unwrap(), &of_mean, 0);
    assert!(summary.participation.values().all(|part| part.test_of_mean.is_none()));
    assert!(summary.participation.values().all(|part| part.test.as_ref().unwrap().rows == 41));
}

#[test]
fn errors_of_predicted_numbers_follow_from_the_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let values = |site: usize, count: usize| {
        let row = |i: usize| {
            let (x, y) = ((i % 7) as f64, ((i + site) % 5) as f64);
            format!("{x},{y},{}\n", 40.0 + x - 2.0 * y + (i % 3) as f64 + site as f64)
        };
        "x,y,price\n".to_string() + &(0..count).map(row).collect::<String>()
    };
    let sites = [(values(0, 50), Some(values(1, 23))), (values(3, 70), Some(values(2, 31)))];
    let (sites, ended) = run(folder.path(), &sites, "kind = 'least-squares'\noutputs = 1");
    let summary = summary(&sites[0].single.design, &ended);
    let model = &sites[0].single.model;
    let mut trained = Vec::new();
    for single in sites.iter().map(|site| &site.single) {
        let text = fs::read_to_string(&single.design.experiment.data.source).unwrap();
        let price = |line: &str| line.rsplit(',').next().unwrap().parse::<f64>().unwrap();
        trained.extend(text.lines().skip(1).map(price));
    }
    let middle = trained.iter().sum::<f64>() / trained.len() as f64;
    let check = |figures: &Figures, pairs: &[(f64, f64)]| {
        let rows = pairs.len() as f64;
        let output = &figures.outputs[0];
        let over = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            pairs.iter().map(|&(p, y)| of(p, y)).sum::<f64>() / rows
        };
        let mean = over(&|_, y| y);
        close(Some(output.mae), over(&|p, y| (p - y).abs()), "MAE");
        close(Some(output.rmse), over(&|p, y| (p - y).powi(2)).sqrt(), "RMSE");
        let explained = 1.0 - over(&|p, y| (p - y).powi(2)) / over(&|_, y| (y - mean).powi(2));
        close(output.r2, explained, "R2");
        let baseline = over(&|_, y| (y - middle).powi(2)).sqrt();
        close(Some(output.baseline_rmse), baseline, "baseline");
        assert_eq!((figures.accuracy, figures.rows), (None, pairs.len() as u64));
    };
    let pairs = |x: &[f32], single: &Single| -> Vec<(f64, f64)> {
        let test = single.test.as_ref().unwrap().ready().unwrap();
        let gradvine::data::Target::Values(values) = &test.target else { panic!("numbers") };
        let predicted = model.predict(x, test.features.view()).unwrap();
        predicted.iter().zip(values).map(|(&p, &y)| (f64::from(p), f64::from(y))).collect()
    };
    let mut all = Vec::new();
    for (site, part) in sites.iter().zip(summary.participation.values()) {
        check(part.test.as_ref().unwrap(), &pairs(&site.own, &site.single));
        let of_mean = pairs(&ended[0].mean, &site.single);
        check(part.test_of_mean.as_ref().unwrap(), &of_mean);
        all.extend(of_mean);
    }
    check(summary.outcome.test.as_ref().unwrap(), &all);
}

#[test]
fn a_site_that_does_much_worse_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let turned = |count: usize| {
        // The labels of this site's test rows are those of other classes.
        let turn = |line: &str| {
            let (features, class) = line.rsplit_once(',').unwrap();
            match class.parse::<u32>() {
                Ok(class) => format!("{features},{}\n", (class + 1) % 3),
                Err(_) => format!("{line}\n"),
            }
        };
        rows(0, count).lines().map(turn).collect::<String>()
    };
    for (last, named) in [(turned(60), true), (rows(0, 60), false), (turned(1), false)] {
        let sites = [
            (rows(0, 60), Some(rows(0, 60))),
            (rows(0, 60), Some(rows(0, 50))),
            (rows(0, 60), Some(last)),
        ];
        let (sites, ended) = run(folder.path(), &sites, "kind = 'softmax'\noutputs = 3");
        let warnings = summary(&sites[0].single.design, &ended).warnings;
        let is_named = warnings.iter().any(|line| line.starts_with("site 2: the mean model"));
        assert_eq!(is_named, named, "{warnings:?}");
        assert!(!warnings.iter().any(|line| line.starts_with("site 0")), "{warnings:?}");
    }
}

/// Records of earlier versions have no counts.
#[test]
fn a_record_without_counts_is_accepted_and_one_with_others_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let sites = [(rows(0, 60), Some(rows(3, 41))), (rows(1, 90), Some(rows(4, 37)))];
    let (sites, mut ended) = run(folder.path(), &sites, "kind = 'softmax'\noutputs = 3");
    let (design, records) = (&sites[0].single.design, &mut ended[0].records);
    let good = Closing::from_bytes(&records[1]).unwrap();
    let old = Closing { counts: None, counts_of_mean: None, ..good.clone() };
    records[1] = old.to_bytes();
    let summary = Summary::new(design, records).unwrap();
    assert!(summary.unusable.is_empty() && !summary.digest.is_empty());
    let all = summary.outcome.test.unwrap();
    assert_eq!((all.rows, all.auc, all.confusion.len()), (78, None, 0));
    assert_eq!(all.accuracy, summary.outcome.test_accuracy_of_mean);
    // Counts of other rows than those of the score.
    let score = gradvine::run::record::Score { rows: 36, ..good.test.unwrap() };
    let wrong = Closing { test: Some(score), ..good };
    records[1] = wrong.to_bytes();
    let summary = Summary::new(design, records).unwrap();
    assert!(summary.unusable["1"].contains("counts of 37 rows"), "{:?}", summary.unusable);
}
