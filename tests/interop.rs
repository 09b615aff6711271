//! Nodes and an independent implementation of libp2p: js-libp2p on Node.js.
//!
//! `.ci/run` installs the packages of `tests/interop/package.json` in `target/interop`, from the
//! npm registry. Without them, or without `node`, the tests say so and pass.

#[path = "common/command.rs"]
mod command;

use std::{path::Path, process::Command};

use command::{Deployment, NAMES, ROOT, Reach, until};
use serde_json::Value;

/// The folder of the packages, if there are Node.js and js-libp2p.
fn packages() -> Option<String> {
    let folder = format!("{ROOT}/target/interop");
    let has_node = Command::new("node").arg("--version").output().is_ok_and(|o| o.status.success());
    let has_packages = Path::new(&folder).join("node_modules/libp2p").is_dir();
    match (has_node, has_packages) {
        (true, true) => return Some(folder),
        (false, _) => println!("skipped: node is not installed"),
        (_, false) => {
            println!("skipped: js-libp2p is not installed in target/interop: .ci/run installs it");
        }
    }
    None
}

/// What a peer finds that connects with this key, or as a stranger with `-`.
fn peer(packages: &str, address: &str, encryption: &str, key: &str, protocols: &[String]) -> Value {
    // Packages are looked up beside the program.
    let program = Path::new(packages).join("peer.mjs");
    std::fs::copy(Path::new(ROOT).join("tests/interop/peer.mjs"), &program).unwrap();
    let mut command = Command::new("node");
    command.arg(program).args([address, encryption, key]).args(protocols);
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
#[ignore = "slow"]
fn another_implementation_meets_a_node_that_then_runs() {
    let Some(packages) = packages() else { return };
    let deployment = Deployment::new(Reach::Tcp, "rounds = 5\nconnect_s = 120");
    let peer_of = |name: &str| {
        let key = deployment.file(&format!("{name}.key"));
        let key = gradvine::net::identity::load(&key).unwrap();
        key.public().to_peer_id().to_string()
    };
    let mut london = deployment.start("london");
    let address = format!("{}/p2p/{}", deployment.address("london"), peer_of("london"));
    let port = deployment.address("london").rsplit('/').next().unwrap().to_string();
    until("the node listens", || std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
    let key = deployment.file("tokyo.key").display().to_string();
    let version = gradvine::net::VERSION;
    let bulk = format!("/gradvine/{version}/bulk/{}", peer_of("tokyo"));
    // Streams of other protocols, and ours with bytes that no node sends, from an impostor that has
    // the key of a member.
    let streams = [
        "/nothing/1".to_string(),
        format!("/gradvine/{version}/control/{}", peer_of("oslo")),
        format!("/gradvine/{version}/control/{}", peer_of("tokyo")),
        bulk,
        format!("/gradvine/{version}/probe"),
        "/ipfs/ping/1.0.0".to_string(),
    ];
    for (encryption, protocol) in [("noise", "/noise"), ("tls", "/tls/1.0.0")] {
        let found = peer(&packages, &address, encryption, &key, &streams);
        assert_eq!(found["connected"], true, "{found}");
        assert_eq!(found["encryption"], protocol, "{found}");
        let of_node = found["identify"]["protocols"].as_array().expect("identify has answered");
        for protocol in ["/ipfs/id/1.0.0", "/ipfs/ping/1.0.0"] {
            assert!(of_node.iter().any(|known| known == protocol), "{found}");
        }
        let agent = found["identify"]["agentVersion"].as_str().unwrap();
        assert!(agent.starts_with("gradvine/"), "{found}");
        assert!(found["ping"].is_number(), "{found}");
        let of_stream = |index: usize| &found["streams"][&streams[index]];
        assert!(of_stream(0)["error"].is_string(), "no such protocol: {found}");
        // Closed at once, so that it depends on the moment whether writing to it fails.
        let received = &of_stream(1)["received"];
        assert!(received.is_null() || *received == 0, "the stream of another member: {found}");
    }
    for encryption in ["noise", "tls"] {
        let found = peer(&packages, &address, encryption, "-", &streams);
        let is_served = found["ping"].is_number() || found["identify"]["protocols"].is_array();
        assert!(!is_served, "a stranger: {found}");
    }
    assert!(london.is_running(), "{}", london.errors());
    let mut others = ["tokyo", "oslo"].map(|name| deployment.start(name));
    assert_eq!(others.each_mut().map(|node| node.end().0), [Some(0); 2]);
    assert_eq!(london.end().0, Some(0), "{}", london.errors());
    let digests = NAMES.map(|name| command::json(&deployment.run(name).join("summary.json")));
    assert!(digests.iter().all(|one| one["digest"] == digests[0]["digest"]));
}
