//! `gradvine propose`, `remove`, `accept`, `decline`

use std::path::PathBuf;

use gradvine::{config::ConfigError, experiment::Experiment};
use gradvine_enrol::{Book, Proposal, Run, check_text, now};
use gradvine_terminal::{Exit, print};

use super::{Folder, init::topology_text, rows::check_rows};

/// The arguments of `gradvine propose`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine propose --set optimizer.step=0.05 --reason \"the loss jumps\"
  gradvine propose --topology complete
  gradvine propose                              shows what is proposed

Each site sees the proposal, and what it changes; its user answers with `gradvine accept` or
`gradvine decline`. Once enough have accepted, all nodes end their stage after the same round, and
a next one begins from the mean model, with the new settings and the rounds that are left.")]
pub(crate) struct ProposeArgs {
    /// Settings of the experiment
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A family of graphs, or a topology file that names all sites
    #[arg(long, value_name = "FAMILY|FILE")]
    topology: Option<PathBuf>,
    /// Why, for the other sites
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    folder: Folder,
}

/// The arguments of `gradvine remove`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine remove madrid --reason \"its rows are counted twice\"

It is a proposal. Once enough sites have accepted it, the others go on from the mean model; the site
that is removed keeps its own.")]
pub(crate) struct RemoveArgs {
    /// The site to remove
    site: String,
    /// Why, for the other sites
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    folder: Folder,
}

/// The arguments of `gradvine accept`
#[derive(clap::Args, Debug)]
pub(crate) struct AcceptArgs {
    /// Whose proposal, if there are several
    by: Option<String>,
    #[command(flatten)]
    folder: Folder,
}

/// The arguments of `gradvine decline`
#[derive(clap::Args, Debug)]
pub(crate) struct DeclineArgs {
    /// Whose proposal, if there are several
    by: Option<String>,
    /// Why, for the other sites
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    folder: Folder,
}

/// The arguments of `gradvine settle`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine settle                  shows two versions of the run that have one number
  gradvine settle 3fa29c11b0e4     goes on with this one

A site that has signed both is not to be trusted: talk to the others first, and choose the same
version. Once more than half have, of the sites that have not signed both, all go on with it; then
`gradvine remove` the site that has signed both.")]
pub(crate) struct SettleArgs {
    /// The digest of the version that counts, or its first digits
    digest: Option<String>,
    #[command(flatten)]
    folder: Folder,
}

/// Proposes other settings, or shows what is proposed.
pub(crate) fn propose(args: &ProposeArgs) -> Result<(), Exit> {
    if args.set.is_empty() && args.topology.is_none() {
        return Ok(print(&shown(&args.folder.site()?.book()?))?);
    }
    let topology = args.topology.as_deref().map(topology_text).transpose()?;
    change(&args.folder, |run| {
        let mut changes = Vec::new();
        if !args.set.is_empty() {
            changes.push(format!("sets {}", args.set.join(", ")));
        }
        if let Some(path) = &args.topology {
            changes.push(format!("the topology becomes {}", path.display()));
        }
        let experiment = match args.set.is_empty() {
            true => run.experiment.clone(),
            false => Experiment::parse(&run.experiment, &args.set)?.to_toml(),
        };
        let topology = topology.clone().unwrap_or_else(|| run.topology.clone());
        let next = run.next(now(), changes.join("; "), args.reason.clone());
        let next = Run { experiment, topology, ..next };
        match next.trains_as(run) {
            true => Err(ConfigError::at("--set", "it changes nothing")),
            false => Ok(next),
        }
    })
}

/// Proposes to remove a site.
pub(crate) fn remove(args: &RemoveArgs) -> Result<(), Exit> {
    change(&args.folder, |run| {
        let invited = run.invitations.iter().any(|one| one.site == args.site);
        if run.member(&args.site).is_none() && !invited {
            let names: Vec<&str> = run.members.iter().map(|one| one.name.as_str()).collect();
            let problem = format!("no site of the run has this name: {}", names.join(", "));
            return Err(ConfigError::new("SITE", &args.site, problem));
        }
        let mut next = run.next(now(), format!("removes {}", args.site), args.reason.clone());
        next.remove(&args.site)?;
        Ok(next)
    })
}

/// Makes or proposes a version.
fn change(
    folder: &Folder,
    next: impl FnOnce(&Run) -> Result<Run, ConfigError>,
) -> Result<(), Exit> {
    let site = folder.site()?;
    let (counts, text) = site.change(|book| {
        let next = next(book.run())?;
        let reason = next.reason.as_deref().unwrap_or_default();
        check_text(reason).map_err(|why| ConfigError::at("--reason", why))?;
        if next.experiment != book.run().experiment {
            // At least this site can train so.
            check_rows(&site, &next.experiment, "")?;
        }
        let text = format!("{}\n{}", next.change, changes(&next, book.run()));
        Ok((site.propose(book, next)?, text))
    })?;
    Ok(print(&match counts {
        true => text,
        false => format!("proposed: {text}"),
    })?)
}

/// What a version changes, a line each. Its own words may say anything.
fn changes(next: &Run, before: &Run) -> String {
    next.difference(before).iter().map(|line| format!("  {line}\n")).collect()
}

/// All open proposals.
fn shown(book: &Book) -> String {
    let mut text = String::new();
    let current = book.run();
    for one in &book.notes.proposals {
        let (_, need) = current.voters(&one.run);
        text += &format!("{} proposes: {}", one.by, one.run.change);
        if let Some(reason) = &one.run.reason {
            text += &format!(" ({reason})");
        }
        let names = |all: Vec<&String>| all.into_iter().cloned().collect::<Vec<_>>().join(", ");
        text += &format!("\n  accepted by {} of {need} that it needs: ", one.accepts.len());
        text += &names(one.accepts.keys().collect());
        for (name, refusal) in &one.declines {
            text += &format!("\n  declined by {name}");
            if !refusal.reason.is_empty() {
                text += &format!(": {}", refusal.reason);
            }
        }
        text += &format!("\n{}", changes(&one.run, current));
    }
    if text.is_empty() {
        text += "nothing is proposed\n";
    }
    text
}

/// Accepts a proposal.
pub(crate) fn accept(args: &AcceptArgs) -> Result<(), Exit> {
    answer(&args.folder, args.by.as_deref(), None)
}

/// Declines a proposal.
pub(crate) fn decline(args: &DeclineArgs) -> Result<(), Exit> {
    answer(&args.folder, args.by.as_deref(), Some(args.reason.clone()))
}

fn answer(folder: &Folder, by: Option<&str>, refusal: Option<String>) -> Result<(), Exit> {
    let site = folder.site()?;
    let declines = refusal.is_some();
    let (change, adopted) = site.change(|book| {
        let one = chosen(book, by)?;
        let (digest, change) = (one.run.digest(), one.run.change.clone());
        let change = format!("{change}\n{}", changes(&one.run, book.run()));
        if let Some(why) = site.forbids(book.run(), &one.run).filter(|_| !declines) {
            let problem = "take it out of `forbid` there before you accept";
            return Err(ConfigError::new("forbid", why, problem).within(site.node().display()));
        }
        match refusal {
            Some(reason) => site.decline(book, &digest, reason)?,
            None => site.answer(book, &digest, None)?,
        }
        Ok((change, book.run().digest() == digest))
    })?;
    Ok(print(&match (declines, adopted) {
        (true, _) => format!("declined: {change}"),
        (false, true) => format!("accepted, and adopted: {change}"),
        (false, false) => format!("accepted: {change}"),
    })?)
}

/// Chooses one of two versions that have one number, or shows them.
pub(crate) fn settle(args: &SettleArgs) -> Result<(), Exit> {
    let site = args.folder.site()?;
    let Some(digest) = &args.digest else {
        return Ok(print(&both(&site.book()?))?);
    };
    let is_over = site.change(|book| {
        site.settle(book, digest)?;
        site.tend(book);
        Ok(book.conflict.is_none())
    })?;
    Ok(print(match is_over {
        true => "chosen: the sites go on with this version\n",
        false => "chosen: the sites go on with it once more than half have chosen it\n",
    })?)
}

/// The two versions of a contradiction, with who has signed and who has chosen them.
fn both(book: &Book) -> String {
    let Some(conflict) = &book.conflict else {
        return "no version contradicts another one\n".into();
    };
    let at = |one: &&gradvine_enrol::Version| one.run.number + 1 == conflict.number;
    let Some(before) = book.history.iter().find(at) else { return format!("{conflict}\n") };
    let own = book.history.iter().find(|one| one.run.number == conflict.number);
    let mut text = format!("{conflict}\n");
    for version in own.into_iter().chain(conflict.rival.first()) {
        let digest = version.run.digest();
        let chose = book.notes.choices.iter().filter(|one| one.digest == digest);
        let chose: Vec<&str> = chose.map(|one| one.site.as_str()).collect();
        let signed: Vec<&str> = version.signatures.keys().map(String::as_str).collect();
        text += &format!("\n{}  {}\n", &digest[..12], version.run.change);
        text += &changes(&version.run, &before.run);
        text += &format!(
            "  signed by {}; chosen by {}\n",
            signed.join(", "),
            match chose.len() {
                0 => "nobody".into(),
                _ => chose.join(", "),
            }
        );
    }
    text
}

/// The proposal that is meant.
fn chosen<'a>(book: &'a Book, by: Option<&str>) -> Result<&'a Proposal, ConfigError> {
    let open: Vec<&Proposal> = (book.notes.proposals.iter())
        .filter(|one| by.is_none_or(|by| one.by == by) && !one.is_rejected(book.run()))
        .collect();
    match open.as_slice() {
        [one] => Ok(one),
        [] => Err(ConfigError::at("BY", "nothing is proposed that could still be adopted")),
        many => {
            let names: Vec<&str> = many.iter().map(|one| one.by.as_str()).collect();
            Err(ConfigError::at("BY", format!("name one of {}", names.join(", "))))
        }
    }
}
