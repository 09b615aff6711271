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

#[test]
fn the_page_says_who_was_away() {
    let away = "network.absent=[{nodes=[\"2\"],from=10,until=20}]";
    let (_folder, paths) =
        runs(&[("away", &["rule.kind=d-psgd", "compressor.kind=identity", away])]);
    let html = page(&paths, &[]);
    for line in [
        "after round 10, 0, 1 continue from their mean.",
        "after round 20, 2 return: all continue from the mean of 0, 1.",
    ] {
        assert!(html.contains(line), "{line}");
    }
    assert!(!html.contains("left out, because"), "the evaluations of the members are complete");
}

/// The data of the charts on a page.
fn charts(html: &str) -> Vec<Value> {
    let scripts = html.split("<script type=\"application/json\">").skip(1);
    scripts
        .map(|rest| serde_json::from_str(rest.split("</script>").next().unwrap()).unwrap())
        .collect()
}

#[test]
fn the_page_has_everything_and_needs_nothing() {
    let (folder, paths) =
        runs(&[("plain", &PLAIN), ("four-bits", &["rule.kind=choco", "compressor.bits=4"])]);
    let figures = folder.path().join("figures");
    let html = page(&paths, &["--figures", figures.to_str().unwrap()]);
    assert_eq!(html, page(&paths, &[]), "the same runs give the same bytes");
    for word in ["http://", "https://", "url(http", "@import", "<link", "<img", "src="] {
        // The names of a format and of the library that draws the charts.
        let found = html.replace("http://www.w3.org/2000/svg", "");
        let found = found.replace("https://github.com/leeoniya/uPlot", "");
        assert!(!found.contains(word), "{word}");
    }
    for word in ["default-src &apos;none&apos;", "prefers-color-scheme:dark", "@media print"] {
        assert!(html.contains(word) || html.contains(&word.replace("&apos;", "'")), "{word}");
    }
    // Each picture has a title, a description and a table, and is a file of its own.
    let pictures = html.matches("<figure id=").count();
    assert!(pictures >= 10, "{pictures}");
    // Each is there for wide and for narrow screens.
    for what in ["<svg ", "role=\"img\"", "<desc>"] {
        assert_eq!(html.matches(what).count(), 2 * pictures, "{what}");
    }
    let names: Vec<String> = fs::read_dir(&figures)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(html.matches("<details><summary>Figures of").count(), names.len());
    // Of curves the page has one still picture each; over other axes they are files only.
    let (mut shown, mut over_bytes) = (0, 0);
    for name in &names {
        let svg = fs::read_to_string(figures.join(name)).unwrap();
        assert!(svg.starts_with("<svg "), "{name}");
        match html.contains(svg.trim_end()) {
            true => shown += 1,
            false => over_bytes += usize::from(name.ends_with("-bytes.svg")),
        }
    }
    assert_eq!((shown, shown + over_bytes), (pictures, names.len()));
    for chart in charts(&html).iter().filter(|chart| chart["axes"]["share"].is_null()) {
        let series = chart["series"].as_array().unwrap();
        assert_eq!(series.len(), 2, "{chart}");
        let all = series.iter().flat_map(|run| [&run["rounds"], &run["bytes"], &run["mean"]]);
        assert!(all.into_iter().all(|figures| figures.as_array().unwrap().len() == 8), "{chart}");
    }
    for name in [
        "loss-rounds.svg",
        "loss-bytes.svg",
        "accuracy-rounds.svg",
        "test-loss-rounds.svg",
        "consensus-rounds.svg",
        "bytes.svg",
    ] {
        assert!(names.iter().any(|found| found == name), "{name} is not among {names:?}");
    }
    // Ids are ids.
    let ids: Vec<&str> =
        html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let mut once = ids.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ids.len(), "{ids:?}");
    // Times on an ideal network are 0, and the page says so.
    assert!(!names.contains(&"loss-time.svg".to_string()) && html.contains("all times are 0"));
    // The settings that differ, and no others.
    let table = html.split("id=\"differences\"").nth(1).unwrap().split("<h2").next().unwrap();
    assert!(table.contains(">rule.kind<") && table.contains(">compressor.bits<"), "{table}");
    assert!(!table.contains("run.rounds") && !table.contains("optimizer.step"), "{table}");
    // The best of each column, if there is one.
    let summary = html.split("id=\"runs\"").nth(1).unwrap().split("<h2").next().unwrap();
    let payload =
        |path: &Path| json(&path.join("summary.json"))["bytes"]["payload"].as_f64().unwrap() / 3.0;
    assert!(payload(&paths[1]) < payload(&paths[0]));
    let least = format!("<strong>{:.1} kB*</strong>", payload(&paths[1]) / 1e3);
    assert!(summary.contains(&least), "{least}: {summary}");
}

#[test]
fn time_is_drawn_if_it_passes() {
    let timed = ["network.preset=4g", "network.compute=fixed", "network.compute_ms=20"];
    let (_folder, paths) = runs(&[("timed", &timed), ("ideal", &[])]);
    let html = page(&paths, &[]);
    let all = charts(&html);
    let loss = all.iter().find(|chart| chart["title"] == "Training loss").unwrap();
    assert_eq!(loss["axes"]["time"]["words"], "seconds of virtual time", "{loss}");
    assert_eq!(loss["series"][1]["time"], json!([]), "{loss}");
    assert!(html.contains("ideal has no point in this picture."));
    assert!(html.contains("Mbit/s"), "the links' table has what [network] says");
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
    assert!(page(std::slice::from_ref(&train), &[]).contains("No run has consensus distances"));
    let own = train.join("nodes/1/run");
    assert!(page(&[own], &[]).contains("its metrics are those of 1 of 3 nodes."));
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
        "the link to node &lt;2&gt; broke in round 9",
        "1 of 3 nodes missed rounds",
        "not in all rounds: 2.",
        "training loss not finite",
    ] {
        assert!(html.contains(words), "{words}");
    }
    // It is drawn as far as it stays near the others, and a cross marks its end.
    assert!(
        html.contains("wild (diverged)")
            && html.contains("wild leaves the picture at its top.")
            && !html.contains("NaN")
    );
    assert!(page(&paths[..1], &[]).contains(">done<"));
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
    for file in ["experiment.toml", "topology.toml", "metrics.jsonl", "summary.json"] {
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
fn a_run_that_is_not_over_is_shown_if_that_is_asked_for() {
    let (_folder, paths) = runs(&[("run", &[])]);
    fs::remove_file(paths[0].join("summary.json")).unwrap();
    let line = why_not(&paths, &[]);
    assert!(line.contains("--unfinished reads it as far as it has come"), "{line}");
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
    assert!(html.contains(">unfinished<") && html.contains("it has no summary.json"));
    assert!(
        html.contains("left out, because not all of its nodes have written theirs: 1 evaluation.")
    );
    assert!(html.contains("<figure id=\"loss-rounds\"") && html.contains("<figure id=\"nodes-1\""));
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
    assert!(html.contains("&lt;b onload=x&gt;&amp;\u{fffd}") && html.contains("&lt;i&gt;three"));
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
    assert!(
        html.contains("Curves are thinned to 500 points")
            && html.contains("At most 40 evaluations of a run are shown")
    );

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
    assert!(html.len() < 400_000, "{} bytes", html.len());
    for words in [
        "200 of 1,200 nodes are shown",
        "200 of 1,200 links are shown",
        "the 32 nodes of 1200 that sent most",
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
