//! `gradvine invite`

use gradvine::{config::ConfigError, net::Keypair};
use gradvine_enrol::{Invitation, Run, Ticket, check_name, now};
use gradvine_terminal::{Exit, note, print};

use super::Folder;

/// The arguments of `gradvine invite`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine invite lyon                  prints one line to send to lyon: gradvine join gv1...
  gradvine invite lyon rome oslo        one line for each
  gradvine invite lyon                  a site whose key is lost: a new one takes its place
  gradvine invite lyon --auto           the person with the ticket joins without your approval

A ticket is for one site, once, until it expires. Send it as you would send a password. It shows
the run to its bearer, and lets one key ask to join: compare its fingerprint by voice, then
`gradvine approve`. After training has started, a new site needs the consent of the others.")]
pub(crate) struct Args {
    /// The names of the sites to invite
    #[arg(required = true, value_name = "SITE")]
    sites: Vec<String>,
    #[command(flatten)]
    folder: Folder,
    /// Let the site join without approval
    #[arg(long)]
    auto: bool,
    /// Hours until the ticket expires
    #[arg(long, value_name = "HOURS", default_value_t = 168)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=8760))]
    hours: u64,
    /// The reason, which the other sites see
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Makes tickets.
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let site = args.folder.site()?;
    for name in &args.sites {
        check_name(name).map_err(|why| ConfigError::at("SITE", why))?;
    }
    let tickets = site.change(|book| {
        let run = book.run();
        check_places(run, &book.site, &args.sites)?;
        let Some(me) = book.me() else {
            return Err(ConfigError::at("run", "this site is no member of the run any more"));
        };
        let (peer, addresses) = (me.peer.clone(), book.addresses_of(me).to_vec());
        let expires = now() + args.hours * 3600;
        let ticket = |name: &String| {
            let secret = Keypair::generate_ed25519().derive_secret(b"gradvine ticket");
            Ticket {
                run: run.id.clone(),
                title: run.name.clone(),
                site: name.clone(),
                peer: peer.clone(),
                addresses: addresses.clone(),
                expires,
                secret: secret.expect("an Ed25519 key has a secret"),
            }
        };
        let tickets: Vec<Ticket> = args.sites.iter().map(ticket).collect();
        let change = format!("{} invites {}", book.site, args.sites.join(", "));
        let mut next = run.next(now(), change, args.reason.clone());
        // A new ticket for a site replaces its old one.
        next.invitations.retain(|one| !args.sites.contains(&one.site) && one.expires > now());
        let number = next.number;
        next.invitations.extend(tickets.iter().map(|ticket| Invitation {
            site: ticket.site.clone(),
            ticket: ticket.peer().to_string(),
            version: number,
            expires,
            by: book.site.clone(),
        }));
        for name in args.sites.iter().filter(|name| run.member(name).is_some()) {
            note!("{name} is a site of the run: the ticket is for a new key, in another folder");
        }
        let counts = site.propose(book, next)?;
        if args.auto {
            book.automatic.extend(tickets.iter().map(|ticket| ticket.peer().to_string()));
        }
        Ok((tickets, counts))
    })?;
    let (tickets, counts) = tickets;
    if !counts {
        note!("the other sites must agree first; the ticket can be used from then on");
    }
    for ticket in tickets {
        print(&format!("{}: gradvine join {ticket} --data FILE\n", ticket.site))?;
    }
    note!(
        "each line is for one site, once, for {} hours; send it as you would a password",
        args.hours
    );
    Ok(())
}

/// Checks that these sites may be invited.
fn check_places(run: &Run, own: &str, sites: &[String]) -> Result<(), ConfigError> {
    for name in sites {
        if name == own {
            return Err(ConfigError::new("SITE", name, "it is this site"));
        }
        if let Some(places) = run.places()?.filter(|places| !places.contains(name)) {
            let problem = format!("the topology has no such node: expected {}", places.join(", "));
            return Err(ConfigError::new("SITE", name, problem));
        }
    }
    let open = run.open_invitations(now()).map(|one| &one.site).filter(|one| !sites.contains(one));
    let new = open.chain(sites).filter(|name| run.member(name).is_none()).count();
    let all = run.members.len() + new;
    if !run.started && all > run.sites {
        let problem = format!(
            "training begins with {} sites, and these would make {all}: invite more after \
             training has started",
            run.sites
        );
        return Err(ConfigError::new("SITE", sites.join(" "), problem));
    }
    Ok(())
}
