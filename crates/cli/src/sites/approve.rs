//! `gradvine approve`

use gradvine::config::ConfigError;
use gradvine_enrol::fingerprint;
use gradvine_terminal::{Exit, print};

use super::Folder;

/// The arguments of `gradvine approve`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine approve                       shows who asks to join
  gradvine approve lyon K4TQ-ZW2B-7XEM   with the fingerprint that lyon has read aloud")]
pub(crate) struct Args {
    /// The site that asks to join
    #[arg(requires = "fingerprint")]
    site: Option<String>,
    /// The fingerprint that its user reads aloud
    fingerprint: Option<String>,
    #[command(flatten)]
    folder: Folder,
}

/// Admits a site, or lists those that ask.
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let site = args.folder.site()?;
    let book = site.book()?;
    let (Some(name), Some(given)) = (&args.site, &args.fingerprint) else {
        let mut text = String::new();
        for request in &book.requests {
            text += &format!("{} asks to join\n", request.member.name);
        }
        if book.requests.is_empty() {
            text += "no site asks to join\n";
        }
        return Ok(print(&text)?);
    };
    let counts = site.change(|book| {
        let request = book.requests.iter().find(|one| one.member.name == *name).cloned();
        let request = request.ok_or_else(|| {
            let problem = match book.run().member(name) {
                Some(_) => "it is a member of the run already",
                None => "it does not ask to join",
            };
            ConfigError::new("SITE", name, problem)
        })?;
        let (id, ticket) = (&book.run().id, &request.ticket);
        let known = fingerprint(id, ticket, &site.peer(), &request.member);
        let plain = |text: &str| text.replace(['-', ' '], "").to_uppercase();
        if plain(given) != plain(&known) {
            let problem = "the site that asks to join has another one. Do not approve it: \
                           another person may have used the ticket";
            return Err(ConfigError::new("FINGERPRINT", given, problem));
        }
        site.approve(book, &request.ticket)?;
        Ok(book.run().member(name).is_some())
    })?;
    Ok(print(&match counts {
        true => format!("{name} is a site of the run\n"),
        false => format!("{name} joins once the other sites have agreed\n"),
    })?)
}
