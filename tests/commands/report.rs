//! `gradvine report` as users run it: the page, its refusals, runs that ended badly, and its size.

use crate::command;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use command::{SMALL, folder, gradvine, json, metrics, refused};
use serde_json::{Value, json};
use tempfile::TempDir;

const FORTY: [&str; 6] = ["--rounds", "40", "--set", "run.evaluate_every=5", "-q", "--no-baseline"];

/// Runs on three nodes in a folder: `name` and further settings of each.
fn runs(each: &[(&str, &[&str])]) -> (TempDir, Vec<PathBuf>) {
    let folder = folder();
    let paths: Vec<PathBuf> = each.iter().map(|(name, _)| folder.path().join(name)).collect();
    for ((_, settings), path) in each.iter().zip(&paths) {
        // This test does not need it to end well.
        let _ = gradvine()
            .arg("simulate")
            .args(SMALL)
            .args(FORTY)
            .arg("--out")
            .arg(path)
            .args(settings.iter().flat_map(|set| ["--set", set]))
            .assert();
    }
    (folder, paths)
}

/// The page of some runs.
fn page(paths: &[PathBuf], more: &[&str]) -> String {
    let folder = folder();
    let out = folder.path().join("report.html");
    gradvine().arg("report").args(paths).arg("--out").arg(&out).args(more).assert().success();
    fs::read_to_string(out).unwrap()
}

/// The error without a page.
fn why_not(paths: &[PathBuf], more: &[&str]) -> String {
    refused(gradvine().arg("report").args(paths).args(more))
}

const PLAIN: [&str; 2] = ["rule.kind=d-psgd", "compressor.kind=identity"];

/// What a page reads.
pub(crate) fn data(html: &str) -> Value {
    let (_, rest) = html.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split("</script>").next().unwrap()).unwrap()
}

/// The parts of all sections of a run, or of all runs.
pub(crate) fn blocks(part: &Value) -> Vec<Value> {
    let sections = ["first", "beside", "rest"].into_iter().flat_map(|place| {
        part[place].as_array().unwrap().iter().flat_map(|one| one["blocks"].as_array().unwrap())
    });
    sections.cloned().collect()
}

/// The table whose caption begins so.
fn table(part: &Value, caption: &str) -> Value {
    let is_it = |block: &Value| {
        block["kind"] == "table" && block["caption"].as_str().unwrap().starts_with(caption)
    };
    blocks(part).into_iter().find(is_it).unwrap_or_else(|| panic!("no table {caption}"))
}

#[test]
fn the_page_says_who_was_away() {
    let away = "network.absent=[{nodes=[\"2\"],from=10,until=20}]";
    let (_folder, paths) =
        runs(&[("away", &["rule.kind=d-psgd", "compressor.kind=identity", away])]);
    let page = data(&page(&paths, &[]));
    let run = &page["runs"][0];
    assert_eq!(run["marks"], json!([10, 20]));
    let lines = [
        "After round 10, 0, 1 continue from their mean.",
        "After round 20, 2 return: all continue from the mean of 0, 1.",
    ];
    let events: Vec<&Value> =
        run["status"]["events"].as_array().unwrap().iter().map(|event| &event["text"]).collect();
    assert_eq!(events, lines);
    let notes = blocks(run).remove(0).to_string();
    for line in lines {
        assert!(notes.contains(line), "{line}: {notes}");
    }
    assert!(!notes.contains("Left out, because"), "the evaluations of the members are complete");
    let states: Vec<&Value> =
        run["status"]["nodes"].as_array().unwrap().iter().map(|node| &node["state"]).collect();
    assert_eq!(states, ["done", "done", "short"]);
}

#[test]
fn the_page_has_everything_and_needs_nothing() {
    let (folder, paths) =
        runs(&[("plain", &PLAIN), ("four-bits", &["rule.kind=choco", "compressor.bits=4"])]);
    let figures = folder.path().join("figures");
    let html = page(&paths, &["--figures", figures.to_str().unwrap()]);
    assert_eq!(html, page(&paths, &[]), "the same runs give the same bytes");
    for word in ["http://", "https://", "url(http", "@import", "<link rel=\"style", "<img", " src="]
    {
        // The names of a format and of the library that draws the charts.
        let found = html.replace("http://www.w3.org/2000/svg", "");
        let found = found.replace("https://github.com/leeoniya/uPlot", "");
        assert!(!found.contains(word), "{word}");
    }
    for word in ["default-src 'none'", "prefers-color-scheme: dark", "@media print"] {
        assert!(html.contains(word), "{word}");
    }
    let page = data(&html);
    let names: Vec<&Value> =
        page["runs"].as_array().unwrap().iter().map(|run| &run["name"]).collect();
    assert_eq!(names, ["plain", "four-bits"]);
    for (run, path) in page["runs"].as_array().unwrap().iter().zip(&paths) {
        the_curves_are_those_of_the_metrics(run, path);
        let summary = json(&path.join("summary.json"));
        // Each link has its bytes at both ends.
        for node in run["status"]["nodes"].as_array().unwrap() {
            let links = &summary["participation"][node["name"].as_str().unwrap()]["links"];
            assert_eq!(node["links"].as_array().unwrap().len(), links.as_object().unwrap().len());
            for link in node["links"].as_array().unwrap() {
                assert_eq!(link["sent_bytes"], links[link["to"].as_str().unwrap()]["wire"]);
            }
        }
        let figures = table(run, "path-3 and its spectrum")["rows"].to_string();
        assert!(figures.contains("eigenvalue 3") && !figures.contains("eigenvalue 4"), "{figures}");
    }
    let mut pictures: Vec<String> = fs::read_dir(&figures)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    // Times on an ideal network are 0.
    let known = ["accuracy", "loss", "test-loss"].iter();
    let mut known: Vec<String> = known
        .flat_map(|figure| ["rounds", "bytes"].map(|axis| format!("{figure}-{axis}.svg")))
        .chain(["consensus-rounds.svg".to_string()])
        .collect();
    known.sort();
    pictures.sort();
    assert_eq!(pictures, known);
    // The settings that differ, and no others.
    let all = &page["all"];
    let differ = table(all, "Settings whose values differ")["rows"].to_string();
    assert!(differ.contains("rule.kind") && differ.contains("compressor.bits"), "{differ}");
    assert!(!differ.contains("run.rounds") && !differ.contains("optimizer.step"), "{differ}");
    // The best of each column, if there is one.
    let summary = table(all, "Figures at the end of each run")["rows"].clone();
    let payload =
        |path: &Path| json(&path.join("summary.json"))["bytes"]["payload"].as_f64().unwrap() / 3.0;
    assert!(payload(&paths[1]) < payload(&paths[0]));
    let least = json!({ "best": format!("{:.1} kB", payload(&paths[1]) / 1e3) });
    assert!(summary[1].as_array().unwrap().contains(&least), "{least}: {summary}");
    assert_eq!(all["groups"], json!([]), "they differ in more than their seeds");
}

/// The lines of a run's page go through the evaluations of `metrics.jsonl`.
fn the_curves_are_those_of_the_metrics(run: &Value, path: &Path) {
    let lines = metrics(path);
    let near = |shown: &Value, known: f64| {
        let shown = shown.as_f64().unwrap();
        assert!((shown - known).abs() <= 1e-6 * known.abs(), "{shown} is not {known}");
    };
    let whole = &run["whole"];
    assert_eq!(whole["round"], json!([5, 10, 15, 20, 25, 30, 35, 40]));
    for (at, round) in whole["round"].as_array().unwrap().iter().enumerate() {
        let of = lines.iter().filter(|line| line["round"] == *round);
        let of: Vec<&Value> = of.collect();
        let values =
            |key: &str| of.iter().map(|line| line[key].as_f64().unwrap()).collect::<Vec<_>>();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        near(&whole["loss"][at], mean(&values("train_loss")));
        near(&whole["consensus"][at], mean(&values("consensus")));
        near(&whole["bytes"][at], mean(&values("bytes_payload")).round());
        for key in ["test_accuracy", "test_loss"] {
            let values = values(key);
            near(&whole["measures"][key][at], mean(&values));
            if !whole["low"][key].is_null() {
                near(&whole["low"][key][at], values.iter().copied().fold(f64::INFINITY, f64::min));
                near(&whole["high"][key][at], values.iter().copied().fold(0.0, f64::max));
            }
            for (node, line) in of.iter().enumerate() {
                let series = &run["curves"]["series"][node];
                near(&series["measures"][key][at], line[key].as_f64().unwrap());
                assert_eq!(series["bytes"][at], line["bytes_payload"]);
                // The loss of the mean model is that of no node.
                assert!(series["loss"][at].is_null());
            }
        }
    }
}

#[test]
fn runs_that_differ_in_their_seeds_are_one_line_with_its_interval() {
    let seeds = [1, 2, 3].map(|seed| format!("run.seed={seed}"));
    let each = [seeds[0].as_str(), PLAIN[0], PLAIN[1]];
    let two = [seeds[1].as_str(), PLAIN[0], PLAIN[1]];
    let three = [seeds[2].as_str(), PLAIN[0], PLAIN[1]];
    let other = ["rule.kind=choco", "compressor.bits=4"];
    let (_folder, paths) =
        runs(&[("a", &each), ("b", &two), ("other", &other), ("c", &three), ("a-again", &each)]);
    let page = data(&page(&paths, &[]));
    let groups = page["all"]["groups"].as_array().unwrap();
    let names: Vec<&Value> = groups.iter().map(|group| &group["node"]).collect();
    assert_eq!(names, ["a and 2 more seeds", "other", "a-again"]);
    let of = |run: usize| page["runs"][run]["whole"]["loss"][7].as_f64().unwrap();
    let values = [of(0), of(1), of(3)];
    let mean = values.iter().sum::<f64>() / 3.0;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    // Student's t for two degrees of freedom, from a table.
    let half = 4.302_653 * (squares / 2.0 / 3.0).sqrt();
    let shown = |key: &str| groups[0][key]["loss"][7].as_f64().unwrap();
    assert!((groups[0]["loss"][7].as_f64().unwrap() - mean).abs() < 1e-6);
    assert!((shown("low") - (mean - half)).abs() < 1e-6 && half > 0.0);
    assert!((shown("high") - (mean + half)).abs() < 1e-6);
}

#[test]
fn time_is_drawn_if_it_passes() {
    let timed = ["network.preset=4g", "network.compute=fixed", "network.compute_ms=20"];
    let (folder, paths) = runs(&[("timed", &timed), ("ideal", &[])]);
    let figures = folder.path().join("figures");
    let page = data(&page(&paths, &["--figures", figures.to_str().unwrap()]));
    let times = |run: usize| page["runs"][run]["whole"]["time_s"].as_array().unwrap().clone();
    assert!(times(0).iter().all(|time| time.as_f64() > Some(0.0)));
    assert!(times(1).iter().all(|time| time.as_f64() == Some(0.0)));
    let svg = fs::read_to_string(figures.join("loss-time.svg")).unwrap();
    assert!(svg.contains("seconds of virtual time"), "{svg}");
    let links = table(&page["runs"][0], "Links of timed").to_string();
    assert!(links.contains("Mbit/s"), "the links' table has what [network] says: {links}");
}

#[test]
fn summaries_list_the_bytes_of_each_link() {
    let (_folder, paths) = runs(&[("run", &[])]);
    let summary = json(&paths[0].join("summary.json"));
    let nodes = summary["participation"].as_object().unwrap();
    let mut all = [0, 0];
    for (name, part) in nodes {
        let links = part["links"].as_object().unwrap();
        // A path of three: the ends have one neighbour, the middle has two.
        assert_eq!(links.len(), if name == "1" { 2 } else { 1 });
        for (sum, key) in all.iter_mut().zip(["payload", "wire"]) {
            let sent: u64 = links.values().map(|link| link[key].as_u64().unwrap()).sum();
            assert_eq!(Some(sent), part[format!("bytes_{key}")].as_u64(), "{name}: {key}");
            *sum += sent;
        }
    }
    assert_eq!(json!(all), json!([summary["bytes"]["payload"], summary["bytes"]["wire"]]));
    // Over libp2p the same goes over each link, and its run has a page too.
    let train = paths[0].with_file_name("train");
    let out = ["--processes", "--out"];
    gradvine().arg("train").args(SMALL).args(FORTY).args(out).arg(&train).assert().success();
    let links = |path: &Path| {
        let summary = json(&path.join("summary.json"));
        let nodes = summary["participation"].as_object().unwrap();
        nodes.values().map(|part| part["links"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(links(&train), links(&paths[0]));
    // Processes do not have each other's models; a node's own directory has only its own
    // evaluations.
    let shown = data(&page(std::slice::from_ref(&train), &[]));
    assert!(shown["runs"][0]["whole"]["consensus"].is_null());
    let own = train.join("nodes/1/run");
    let shown = page(&[own], &[]);
    assert!(shown.contains("Its metrics are those of 1 of 3 nodes."));
    let run = &data(&shown)["runs"][0];
    assert_eq!(run["whole"]["node"], "mean of 1 node");
    // Of the others the summary has the figures at the end.
    let ends = json(&train.join("summary.json"))["participation"]["0"]["test_accuracy"].clone();
    assert_eq!(run["status"]["nodes"][0]["measures"]["test_accuracy"], ends);
    // Its events are those that the node saw; a file that cannot be read is named.
    let own = train.join("nodes/1/run");
    let events = |page: &str| data(page)["runs"][0]["status"]["events"].clone();
    assert_eq!(events(&shown), json(&own.join("status.json"))["events"]);
    fs::write(own.join("status.json"), "{").unwrap();
    let text = events(&page(&[own], &[])).to_string();
    assert!(text.contains("status.json has no events that can be read: EOF"), "{text}");
}

#[test]
fn runs_that_ended_badly_are_marked() {
    let (_folder, paths) = runs(&[
        ("sound", &PLAIN),
        ("wild", &[PLAIN[0], PLAIN[1], "optimizer.step=30", "optimizer.weight_decay=1"]),
    ]);
    let failing = |name: &str, change: &dyn Fn(&mut Value)| {
        let path = paths[0].with_file_name(name);
        fs::create_dir(&path).unwrap();
        for file in ["experiment.toml", "topology.toml", "metrics.jsonl"] {
            fs::copy(paths[0].join(file), path.join(file)).unwrap();
        }
        let mut summary = json(&paths[0].join("summary.json"));
        change(&mut summary);
        fs::write(path.join("summary.json"), summary.to_string()).unwrap();
        path
    };
    let mut all = paths.clone();
    all.push(failing("halted", &|summary| {
        summary["interrupted"] = json!(true);
        summary["rounds"] = json!(17);
    }));
    all.push(failing("broken", &|summary| {
        summary["failure"] = json!("the link to node <2> broke in round 9");
    }));
    all.push(failing("short", &|summary| summary["participation"]["2"]["rounds"] = json!(1)));
    // A diverged baseline is no number in JSON.
    all.push(failing("null", &|summary| summary["pooled"] = json!({ "train_loss": null })));
    let html = page(&all, &[]);
    for words in [
        "diverged in round",
        "interrupted after round 17",
        "the link to node \\u003c2> broke in round 9",
        "1 of 3 nodes missed rounds",
        "Not in all rounds: 2.",
        "training loss not finite",
    ] {
        assert!(html.contains(words), "{words}");
    }
    let states: Vec<Value> = data(&html)["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["status"]["state"].clone())
        .collect();
    assert_eq!(states, ["done", "diverged", "stopped", "failed", "done", "done"]);
    assert!(!html.contains("NaN\""));
}

#[test]
fn missing_and_broken_files_are_named() {
    let (_folder, paths) = runs(&[("run", &[])]);
    let run = &paths[0];
    let broken = |file: &str, text: Option<&str>| {
        let (path, aside) = (run.join(file), run.join("aside"));
        fs::rename(&path, &aside).unwrap();
        if let Some(text) = text {
            fs::write(&path, text).unwrap();
        }
        let line = why_not(&paths, &[]);
        fs::rename(&aside, &path).unwrap();
        line
    };
    for file in ["experiment.toml", "topology.toml", "metrics.jsonl"] {
        let line = broken(file, None);
        assert!(line.contains(&format!("{file}: is missing")) && line.contains("run: "), "{line}");
    }
    let cases = [
        ("experiment.toml", "[run]\nroundz = 3\n", "unknown field `roundz`"),
        ("topology.toml", "nodes = 3\n", "topology.toml: "),
        (
            "metrics.jsonl",
            "{\"round\": 1}\n",
            "metrics.jsonl: line 1 = {\"round\": 1}: missing field `node`",
        ),
        ("summary.json", "{", "summary.json: summary: EOF while parsing"),
    ];
    for (file, text, words) in cases {
        let line = broken(file, Some(text));
        assert!(line.contains(words), "{file}: {line}");
    }
    let line = |node: u32, round: u64| {
        format!(
            "{{\"round\":{round},\"node\":{node},\"time_s\":0.0,\"bytes_payload\":0,\
             \"bytes_wire\":0,\"bytes_dense\":0}}\n"
        )
    };
    let far = broken("metrics.jsonl", Some(&line(3, 5)));
    assert!(far.contains("line 1: node = 3: expected a node from 0 to 2"), "{far}");
    let again = broken("metrics.jsonl", Some(&(line(0, 5) + &line(0, 5))));
    assert!(again.contains("line 2: round = 5: node 0 was in round 5 before"), "{again}");
    let mut other = json(&run.join("summary.json"));
    other["nodes"] = json!(7);
    assert!(
        broken("summary.json", Some(&other.to_string()))
            .contains("nodes = 7: topology.toml beside it has 3")
    );
}

#[test]
fn a_run_that_is_not_over_is_shown_as_far_as_it_has_come() {
    let (folder, paths) = runs(&[("run", &[])]);
    fs::remove_file(paths[0].join("summary.json")).unwrap();
    let warned = |more: &[&str]| {
        let out = folder.path().join("report.html");
        let run = gradvine().arg("report").args(&paths).arg("--out").arg(out).args(more).assert();
        String::from_utf8(run.success().get_output().stderr.clone()).unwrap()
    };
    assert!(warned(&[]).contains("run has no summary.json: it runs, or was killed"));
    assert_eq!(warned(&["--unfinished"]), "");
    // The last line is being written, and one node is ahead of the others.
    let file = paths[0].join("metrics.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    let started = whole
        .lines()
        .last()
        .unwrap()
        .replace("\"round\":40", "\"round\":45")
        .replace("\"node\":2", "\"node\":0");
    fs::write(&file, format!("{whole}{started}\n{{\"round\":45,\"no")).unwrap();
    let html = page(&paths, &["--unfinished"]);
    let run = &data(&html)["runs"][0];
    assert_eq!(run["status"]["state"], "unfinished");
    let notes = blocks(run).remove(0).to_string();
    for words in [
        "It has no summary.json",
        "Left out, because not all of its nodes have written theirs: 1 evaluation.",
    ] {
        assert!(notes.contains(words), "{notes}");
    }
    assert_eq!(run["whole"]["loss"].as_array().unwrap().len(), 8);
    assert_eq!(run["status"]["nodes"].as_array().unwrap().len(), 3);
}

#[test]
fn names_cannot_become_markup() {
    let (folder, paths) = runs(&[("run", &[])]);
    let odd = folder.path().join("<b onload=x>&\u{7}");
    fs::rename(&paths[0], &odd).unwrap();
    let swap = |file: &str, from: &str, to: &str| {
        let text = fs::read_to_string(odd.join(file)).unwrap();
        assert!(text.contains(from), "{file}: {text}");
        fs::write(odd.join(file), text.replace(from, to)).unwrap();
    };
    swap("topology.toml", "name = \"path-3\"", "name = \"<i>three\"");
    swap("experiment.toml", "kind = \"softmax\"", "kind = \"<u>softmax\"");
    swap("experiment.toml", "source = \"breast-cancer\"", "source = \"</pre><u>rows.csv\"");
    let html = page(&[odd], &[]);
    for markup in ["<b ", "<i>", "<u>", "</pre><"] {
        assert!(!html.contains(markup), "{markup}");
    }
    let page = data(&html);
    assert_eq!(page["runs"][0]["name"], "<b onload=x>&\u{fffd}");
    assert_eq!(page["runs"][0]["status"]["topology"], "<i>three");
    assert!(
        !html.chars().any(|c| c.is_control() && c != '\n'),
        "a control character is on the page"
    );
}

#[test]
#[ignore = "slow"]
fn long_runs_and_many_nodes_make_no_large_page() {
    let (folder, paths) = runs(&[("run", &[])]);
    // 20,000 evaluations of each of three nodes, made of one.
    let first = metrics(&paths[0])[0].clone();
    let mut long = String::new();
    for round in 1..=20_000 {
        for node in 0..3 {
            let mut line = first.clone();
            line["round"] = json!(round);
            line["node"] = json!(node);
            line["train_loss"] = json!(1.0 / f64::from(round));
            let _ = writeln!(long, "{line}");
        }
    }
    fs::write(paths[0].join("metrics.jsonl"), long).unwrap();
    let html = page(&paths, &[]);
    assert!(html.len() < 400_000, "{} bytes", html.len());
    // The first and the last of each line are there.
    let run = &data(&html)["runs"][0];
    for line in [&run["whole"], &run["curves"]["series"][0], &run["curves"]["series"][2]] {
        let rounds = line["round"].as_array().unwrap();
        assert!((100..=401).contains(&rounds.len()), "{}", rounds.len());
        assert_eq!((&rounds[0], &rounds[rounds.len() - 1]), (&json!(1), &json!(20_000)));
    }
    assert!(html.contains("Curves are thinned to 400 points"));

    let wide = folder.path().join("wide");
    gradvine()
        .arg("simulate")
        .args(["--rounds", "2", "-q", "--no-baseline", "--topology", "ring:1200"])
        .args([
            "--set",
            "model.kind=softmax",
            "--set",
            "data.split=iid",
            "--set",
            "data.test_share=0.1",
            "--out",
        ])
        .arg(&wide)
        .assert()
        .success();
    let html = page(&[wide], &[]);
    assert!(html.len() < 900_000, "{} bytes", html.len());
    for words in [
        "200 of 1,200 nodes are shown",
        "200 of 1,200 links are shown",
        "The first 512 of 1200 nodes are drawn.",
    ] {
        assert!(html.contains(words), "{words}");
    }
}

#[test]
fn totals_beyond_the_maximum_do_not_wrap() {
    let (_folder, paths) = runs(&[("plain", &PLAIN)]);
    let file = paths[0].join("summary.json");
    let mut summary = json(&file);
    let most = json!(u64::MAX);
    for part in summary["participation"].as_object_mut().unwrap().values_mut() {
        for key in ["bytes_payload", "bytes_wire", "bytes_dense", "rows", "rounds"] {
            part[key] = most.clone();
        }
        for link in part["links"].as_object_mut().unwrap().values_mut() {
            *link = json!({ "payload": most, "wire": most });
        }
    }
    summary["bytes"] = json!({ "payload": most, "wire": most, "dense": most });
    fs::write(&file, summary.to_string()).unwrap();
    let page = page(&paths, &[]);
    // 2^64 bytes; a sum that wraps would show less.
    assert!(page.contains("18446744.07 TB"), "the totals are on the page");
}
