//! The summary of a run as text.

use std::path::Path;

use gradvine::{
    experiment::Weighting,
    run::{Change, Figures, MEAN_MODEL, OutputFigures, Participation, Summary},
    units::{Bytes, duration},
};

use super::{
    command_line::path,
    text::{fitted, loss, number, on_a_line, wrapped},
};

/// The table at the end of a run. `tree`: the bytes that formed the mean, or 0. `width`: the
/// columns of the terminal, if it is shown on one.
pub fn table(summary: &Summary, tree: u64, width: Option<usize>) -> String {
    let head = heading(summary);
    let head = wrapped("", head.trim(), width);
    let lines: String =
        figures_of(summary, tree).lines().map(|line| beside_label(line, width)).collect();
    format!("\n{head}\n{}{}", participants(summary, width), lines.trim_end_matches('\n'))
}

/// A line with a label and words beside it, wrapped.
fn beside_label(line: &str, width: Option<usize>) -> String {
    /// The column of the words.
    const WORDS: usize = 17;
    match line.split_at_checked(WORDS) {
        Some((label, words)) if !words.starts_with(' ') => wrapped(label, words, width),
        _ => format!("{line}\n"),
    }
}

/// The figures of all nodes together, a line each.
fn figures_of(summary: &Summary, tree: u64) -> String {
    let mut text = String::new();
    text += &weights(summary);
    let outcome = &summary.outcome;
    text += &format!(
        "\nmean model       {}",
        figures(outcome.test_accuracy_of_mean, outcome.test_loss_of_mean, outcome.train_loss)
    );
    text += &outcome.test.as_ref().map_or_else(String::new, quality);
    if let Some(worst) = outcome.test_accuracy_min {
        text += &format!("\nworst node       test accuracy {}", percent(Some(worst)));
    }
    if let Some(far) = which_is_the_result(summary) {
        text += &format!("\nwarning          {far}");
    }
    if let Some(pooled) = &summary.pooled {
        text += &format!(
            "\npooled SGD       {} (all rows in one place, batch n times as large)",
            figures(pooled.test_accuracy, None, Some(pooled.train_loss)),
        );
    }
    if let Some(consensus) = outcome.consensus {
        text += &format!(
            "\nconsensus        {consensus:.3e} (mean squared distance of a node's model from the \
             mean)"
        );
    }
    if summary.computing > 0.0 {
        text += &format!("\ncomputing        {:.1}% of the time", 100.0 * summary.computing);
    }
    text += &sent(summary, tree);
    text += &restarts(summary);
    for warning in &summary.warnings {
        text += &format!("\nwarning          {warning}");
    }
    if !summary.digest.is_empty() {
        text += &format!("\ndigest           {}", summary.digest);
    }
    if let Some(trace) = summary.trace.as_ref().filter(|_| summary.time_s > 0.0) {
        text += &format!("\ntrace            {trace}");
    }
    text
}

/// The first line: rule, compressor, topology, and the sizes of the run.
fn heading(summary: &Summary) -> String {
    format!(
        "\n{} with {} on {}{}: {} nodes, {} parameters, {} rounds{} (rho {:.4}, gap {:.4})\n\n",
        summary.rule,
        summary.compressor,
        summary.topology,
        summary.schedule.as_ref().map(|schedule| format!(", {schedule}")).unwrap_or_default(),
        summary.nodes,
        summary.parameters,
        summary.rounds,
        // On an ideal virtual network nothing takes time.
        if summary.time_s > 0.0 {
            format!(" in {}", duration(summary.time_s))
        } else {
            String::new()
        },
        summary.rho,
        summary.gap
    )
}

/// Bytes, and whether the run stopped early.
fn sent(summary: &Summary, tree: u64) -> String {
    let mut text = String::new();
    let (payload, dense) = (Bytes(summary.bytes.payload), Bytes(summary.bytes.dense));
    if let Some(ratio) = summary.ratio() {
        text += &format!(
            "\nsent             {payload} of payload where dense gossip sends {dense}: {ratio:.2} \
             times less"
        );
    }
    if tree > 0 {
        text += &format!(
            "\n                 {} more to form the mean model over a spanning tree",
            Bytes(tree)
        );
    }
    if summary.stopped_early {
        text += &format!(
            "\nstopped early    after round {}: the loss on the rows for validation had not fallen \
             (run.stop_early)",
            summary.rounds
        );
        if summary.kept_best {
            text +=
                "\n                 the models are those of the evaluation with the lowest loss";
        }
    }
    text
}

/// The table at the end of a node's part in a run, and what to do next with its run directory.
pub fn node_table(summary: &Summary, tree: u64, folder: &Path, width: Option<usize>) -> String {
    let (table, model) = (table(summary, tree, width), path(&folder.join(MEAN_MODEL)));
    format!(
        "{table}\nrun directory    {}\n\nTry next:\n  gradvine evaluate {model} DATA\n  compare \
         the digest with the other nodes': all write the same\n",
        folder.display()
    )
}

/// How good the mean model is beside trivial predictions.
fn quality(test: &Figures) -> String {
    /// Of more outputs summary.json has the rest.
    const SHOWN: usize = 8;
    let mut text = String::new();
    if let Some(baseline) = &test.baseline {
        text += &format!("\n  baseline       test accuracy {} (", percent(Some(baseline.accuracy)));
        text += &format!("always \"{}\")", on_a_line(&baseline.class));
    }
    let mut parts = Vec::new();
    if let Some(share) = test.balanced_accuracy {
        parts.push(format!("balanced accuracy {}", percent(Some(share))));
    }
    if let Some(area) = test.auc {
        parts.push(format!("AUC {area:.3}"));
    }
    if let Some(error) = test.calibration_error {
        parts.push(format!("calibration error {}", percent(Some(error))));
    }
    if !parts.is_empty() {
        text += &format!("\n  by class       {}", parts.join(", "));
    }
    let recall = |class: usize| test.classes[class].recall;
    let known = (0..test.classes.len()).filter(|&class| recall(class).is_some());
    if let Some(worst) =
        known.min_by(|&a, &b| recall(a).unwrap_or(1.0).total_cmp(&recall(b).unwrap_or(1.0)))
    {
        let class = &test.classes[worst];
        text += &format!(
            "\n  worst class    \"{}\": {} of its {} rows are found",
            on_a_line(&class.class),
            percent(class.recall),
            class.rows
        );
    }
    for output in test.outputs.iter().take(SHOWN) {
        let r2 = output.r2.map_or_else(String::new, |r2| format!(", R2 {r2:.4}"));
        text += &format!(
            "\n  {:14} RMSE {} (always the mean: {}), MAE {}{r2}",
            output.output,
            number(output.rmse),
            number(output.baseline_rmse),
            number(output.mae)
        );
    }
    text
}

/// Nodes that were started again, and those that returned without their checkpoints.
fn restarts(summary: &Summary) -> String {
    let mut text = String::new();
    let again = summary.participation.iter().filter(|(_, part)| part.restarts > 0);
    let again: Vec<String> =
        again.map(|(name, part)| format!("{name} ({} times)", part.restarts)).collect();
    if !again.is_empty() {
        text += &format!("\nstarted again    {}", again.join(", "));
    }
    for change in &summary.history {
        text += &format!("\nafter round {:<5}{}", change.round, describe(change));
    }
    let away: Vec<String> =
        (summary.away.iter()).map(|(name, rounds)| format!("{name} ({rounds} rounds)")).collect();
    if !away.is_empty() {
        text += &format!("\naway at the end  {}", away.join(", "));
    }
    text
}

/// What a change of the members was.
pub(crate) fn describe(change: &Change) -> String {
    let without: Vec<&str> = (change.members.iter())
        .filter(|name| !change.models.contains(name))
        .map(String::as_str)
        .collect();
    let mut text = match (change.models.len(), without.as_slice()) {
        (0, _) => format!("{} begin", change.members.join(", ")),
        (_, []) => format!("{} continue from their mean", change.members.join(", ")),
        (_, without) => format!(
            "{} return: all continue from the mean of {}",
            without.join(", "),
            change.models.join(", ")
        ),
    };
    for (a, b) in &change.cut {
        text += &format!(", without the link {a} - {b}");
    }
    text
}

/// A warning if nodes' own models are far from the mean model on the same rows: whichever most
/// nodes have better is the result.
pub(crate) fn which_is_the_result(summary: &Summary) -> Option<String> {
    let of_all = summary.outcome.test_accuracy_of_mean;
    // Without figures of the mean model at each node, all nodes test on the same rows.
    let rows = |part: &Participation| {
        let own = part.test.as_ref().or(summary.outcome.test.as_ref());
        own.map_or(0, |figures| figures.rows)
    };
    let above = |part: &Participation| {
        let mean = of_mean(part).or(of_all)?;
        Some((mean - own(part).or(part.test_accuracy)?, mean, rows(part)))
    };
    far_apart(summary.participation.values().filter_map(above).collect())
}

/// By how much the mean model is better than each node's own, its accuracy, and the rows of both.
/// Less than two standard errors of a binomial are no difference.
fn far_apart(above: Vec<(f64, f64, u64)>) -> Option<String> {
    const FAR: f64 = 0.05;
    let known = |(above, mean, rows): (f64, f64, u64)| {
        let middle = mean - above / 2.0;
        let error = (middle * (1.0 - middle) / rows.max(1) as f64).sqrt();
        if above.abs() > 2.0 * error { above } else { 0.0 }
    };
    let mut above: Vec<f64> = above.into_iter().map(known).collect();
    above.sort_by(f64::total_cmp);
    let (median, most) = (*above.get(above.len() / 2)?, *above.last()?);
    if median < -FAR {
        return Some(format!(
            "half of the nodes' own models are {:.1} points or more better than the mean model, \
             which counts every node, also one whose data or frames are wrong: use a node's own \
             model",
            -100.0 * median
        ));
    }
    (most > FAR).then(|| {
        format!(
            "nodes' own models are up to {:.1} points worse than the mean model, which is the \
             result: use model-mean",
            100.0 * most
        )
    })
}

/// Columns of the nodes that a narrow terminal does not show: the first of them is missing first.
const LEAST: [&str; 9] = [
    "classes (rows)",
    "sent",
    "test rows",
    "rows",
    "baseline RMSE",
    "baseline",
    "own RMSE",
    "own model",
    "mean model RMSE",
];

/// The text of a node in one column.
type Cell = fn(&Participation) -> String;

/// Before each line of the nodes.
const INDENT: &str = "  ";

/// One line per node, in aligned columns.
fn participants(summary: &Summary, width: Option<usize>) -> String {
    const SHOWN: usize = 64;
    /// Longer lists of classes are replaced by their number.
    const WIDEST: usize = 40;
    let name =
        |class: usize| summary.classes.get(class).cloned().unwrap_or_else(|| class.to_string());
    let classes = |part: &Participation| {
        let held = part.classes.iter().enumerate().filter(|(_, rows)| **rows > 0);
        let all = held
            .clone()
            .map(|(class, rows)| format!("{} ({rows})", name(class)))
            .collect::<Vec<_>>()
            .join(", ");
        if all.chars().count() > WIDEST { format!("{} classes", held.count()) } else { all }
    };
    let parts = || summary.participation.values().take(SHOWN);
    // Where all nodes test on the same rows, the mean model has one figure.
    let apart = parts().any(|part| part.test_of_mean.is_some());
    let known = |of: fn(&Participation) -> Option<f64>| parts().any(|part| of(part).is_some());
    let numbers = known(rmse);
    let columns: [(&str, bool, Cell); 8] = [
        ("test rows", apart, |part| {
            part.test.as_ref().map_or("-".into(), |test| test.rows.to_string())
        }),
        ("test accuracy", !apart && !numbers, |part| percent(part.test_accuracy)),
        ("own model", apart && known(own), |part| percent(own(part))),
        ("mean model", apart && known(of_mean), |part| percent(of_mean(part))),
        ("baseline", known(baseline), |part| percent(baseline(part))),
        ("own RMSE", numbers, |part| rmse(part).map_or("-".into(), number)),
        ("mean model RMSE", known(rmse_of_mean), |part| {
            rmse_of_mean(part).map_or("-".into(), number)
        }),
        ("baseline RMSE", numbers, |part| baseline_rmse(part).map_or("-".into(), number)),
    ];
    let columns: Vec<_> = columns.into_iter().filter(|(_, shown, _)| *shown).collect();
    let mut rows = vec![vec!["node".to_string(), "rows".into()]];
    let classed = parts().any(|part| !part.classes.is_empty());
    rows[0].extend(classed.then(|| "classes (rows)".into()));
    rows[0].extend(columns.iter().map(|(head, ..)| (*head).to_string()).chain(["sent".into()]));
    rows.extend(summary.participation.iter().take(SHOWN).map(|(name, part)| {
        let mut row = vec![name.clone(), part.rows.to_string()];
        row.extend(classed.then(|| classes(part)));
        row.extend(columns.iter().map(|(.., cell)| cell(part)));
        row.push(Bytes(part.bytes_payload).to_string());
        row
    }));
    let left: &[usize] = if classed { &[0, 2] } else { &[0] };
    let table = fitted(&rows, left, &LEAST, width.map(|width| width.saturating_sub(INDENT.len())));
    let mut text: String = table.lines().map(|line| format!("{INDENT}{line}\n")).collect();
    if summary.participation.len() > SHOWN {
        text += &format!(
            "  ... and {} more nodes in summary.json\n",
            summary.participation.len() - SHOWN
        );
    }
    text
}

/// How nodes count in the mean, where it matters: rows that were divided evenly differ by one.
fn weights(summary: &Summary) -> String {
    let rows = || summary.participation.values().map(|part| part.rows);
    let even = rows().max().unwrap_or(0) <= rows().min().unwrap_or(0).saturating_add(1);
    let words = match summary.weighting {
        _ if even => return String::new(),
        Some(Weighting::Nodes) => "each node counts equally, whatever its rows",
        Some(Weighting::Rows) => "each node counts by its rows",
        _ => return String::new(),
    };
    format!("\nweighting        {words}")
}

/// The figures of a model's only number; `None` if there are several, or classes.
fn output(figures: Option<&Figures>) -> Option<&OutputFigures> {
    match figures?.outputs.as_slice() {
        [output] => Some(output),
        _ => None,
    }
}

fn rmse(part: &Participation) -> Option<f64> {
    Some(output(part.test.as_ref())?.rmse)
}

fn rmse_of_mean(part: &Participation) -> Option<f64> {
    Some(output(part.test_of_mean.as_ref())?.rmse)
}

fn baseline_rmse(part: &Participation) -> Option<f64> {
    Some(output(part.test.as_ref())?.baseline_rmse)
}

fn own(part: &Participation) -> Option<f64> {
    part.test.as_ref()?.accuracy
}

fn of_mean(part: &Participation) -> Option<f64> {
    part.test_of_mean.as_ref()?.accuracy
}

fn baseline(part: &Participation) -> Option<f64> {
    Some(part.test.as_ref()?.baseline.as_ref()?.accuracy)
}

/// The figures of a model that are known, each with the rows that it is of.
fn figures(accuracy: Option<f64>, test_loss: Option<f64>, train_loss: Option<f64>) -> String {
    let test = accuracy
        .map(|share| format!("test accuracy {}", percent(Some(share))))
        .into_iter()
        .chain(test_loss.map(|value| format!("test loss {}", loss(value))));
    let train = format!("training loss {}", train_loss.map_or("-".into(), loss));
    test.chain([train]).collect::<Vec<_>>().join(", ")
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_string(), |share| format!("{:.1}%", 100.0 * share))
}

#[cfg(test)]
mod tests {

    #[test]
    fn own_models_far_from_the_mean_are_warned_of() {
        let far_apart = |above: &[f64], mean: f64, rows: u64| {
            super::far_apart(above.iter().map(|above| (*above, mean, rows)).collect())
        };
        assert_eq!(far_apart(&[0.04, -0.04, 0.0], 0.9, 10_000), None);
        assert_eq!(far_apart(&[], 0.9, 100), None);
        // One row of sixteen says nothing.
        assert_eq!(far_apart(&[0.0625, 0.0], 1.0, 16), None);
        assert_eq!(far_apart(&[-0.0625, -0.0625], 0.9375, 16), None);
        let below = far_apart(&[0.94 - 0.76, 0.0, 0.0], 0.94, 200);
        assert!(below.is_some_and(|far| far.contains("18.0 points worse than the mean model")));
        // One node of three has wrong data, and is in the mean.
        let above = far_apart(&[0.11, -0.6, -0.55], 0.35, 200);
        assert!(above.is_some_and(|far| far.contains("55.0 points or more better than the mean")));
    }
}
