//! Sites whose connections leave them through a proxy only.

use std::{
    fs,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex},
    thread,
};

use gradvine::{experiment::Transport, net::free_ports};

use crate::{
    command::{Deployment, Reach, Running, folder, json, program, within},
    doctor::{errors, examine},
};

/// A name that only the proxy can look up.
const NAME: &str = "berlin.invalid";

/// A proxy of HTTP CONNECT or of SOCKS5 that asks for a user and a password, and the hosts that it
/// was asked for.
struct Proxy {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(serve: fn(&mut TcpStream) -> io::Result<(String, u16)>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let noted = Arc::clone(&noted);
                thread::spawn(move || -> io::Result<()> {
                    let (host, port) = serve(&mut client)?;
                    noted.lock().unwrap().push(host);
                    let other = TcpStream::connect(("127.0.0.1", port))?;
                    let (from, to) = (client.try_clone()?, other.try_clone()?);
                    thread::spawn(move || carry(&from, &to));
                    carry(&other, &client);
                    Ok(())
                });
            }
        });
        Proxy { port, asked }
    }
}

/// Copies bytes until one end closes.
fn carry(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

fn connect(client: &mut TcpStream) -> io::Result<(String, u16)> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    let text = String::from_utf8(request).unwrap();
    let target = text.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap();
    // user:pass%word
    if !text.contains("\r\nProxy-Authorization: Basic dXNlcjpwYXNzJXdvcmQ=\r\n") {
        client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    client.write_all(b"HTTP/1.1 200 Connection established\r\nVia: a test\r\n\r\n")?;
    let (host, port) = target.rsplit_once(':').unwrap();
    Ok((host.into(), port.parse().unwrap()))
}

fn socks(client: &mut TcpStream) -> io::Result<(String, u16)> {
    let mut bytes = |count: usize| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        client.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let hello = bytes(2)?;
    let methods = bytes(hello[1].into())?;
    if hello[0] != 5 || !methods.contains(&2) {
        client.write_all(&[5, 0xff])?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    client.write_all(&[5, 2])?;
    let text = |of: &mut TcpStream, skip: usize| -> io::Result<String> {
        let mut head = vec![0; skip + 1];
        of.read_exact(&mut head)?;
        let mut text = vec![0; head[skip].into()];
        of.read_exact(&mut text)?;
        Ok(String::from_utf8(text).unwrap())
    };
    let (user, password) = (text(client, 1)?, text(client, 0)?);
    let is_right = user == "user" && password == "pass%word";
    client.write_all(&[1, u8::from(!is_right)])?;
    // 5, connect, 0, a name
    let host = text(client, 4)?;
    let mut port = [0; 2];
    client.read_exact(&mut port)?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    Ok((host, u16::from_be_bytes(port)))
}

/// Two sites train. Nothing leads to the second one, and from it only the proxy leads out.
fn train_through(scheme: &str, proxy: &Proxy) {
    let folder = folder();
    let [berlin, lyon] = ["berlin", "lyon"].map(|site| folder.path().join(site));
    [&berlin, &lyon].iter().for_each(|site| fs::create_dir(site).unwrap());
    let port = free_ports(Transport::Tcp, 1).unwrap()[0].to_string();
    let address = format!("{NAME}:{port}");
    let made = ["init", "pair", "--site", "berlin", "--sites", "2", "--data", "digits"];
    let place = ["--port", &port, "--address", &address, "--set", "run.rounds=10"];
    within(&berlin, &[&made[..], &place[..]].concat()).success();
    let start = |site: &std::path::Path, name: &str| {
        let mut command = program();
        command.current_dir(site).arg("start");
        Running::start(&mut command, folder.path(), name)
    };
    let mut first = start(&berlin, "berlin-start");
    let text = within(&berlin, &["invite", "lyon", "--auto"]).success();
    let text = String::from_utf8(text.get_output().stdout.clone()).unwrap();
    let ticket = text.split_whitespace().find(|word| word.starts_with("gv1")).unwrap().to_string();
    let url = format!("{scheme}://user:pass%25word@127.0.0.1:{}", proxy.port);
    fs::write(lyon.join("proxy"), &url).unwrap();
    let given = if scheme == "http" { ["--proxy", &url] } else { ["--proxy-file", "proxy"] };
    within(&lyon, &[&["join", &ticket, "--data", "digits"], &given[..]].concat()).success();
    let mode = fs::metadata(lyon.join("node.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut second = start(&lyon, "lyon-start");
    for running in [&mut first, &mut second] {
        let (code, _) = running.end();
        assert_eq!(code, Some(0), "{}", running.errors());
    }
    let digest =
        |site: &std::path::Path| json(&site.join("training/summary.json"))["digest"].clone();
    assert_eq!(digest(&berlin), digest(&lyon));
    let asked = proxy.asked.lock().unwrap();
    // To look, to join, and for the link.
    assert!(asked.len() >= 3 && asked.iter().all(|host| host == NAME), "{asked:?}");
    // The password stands in the node file only.
    assert!(!second.errors().contains("pass%"), "{}", second.errors());
}

#[test]
#[ignore = "slow"]
fn a_site_behind_an_http_proxy_trains() {
    train_through("http", &Proxy::start(connect));
}

#[test]
#[ignore = "slow"]
fn a_site_behind_a_socks_proxy_trains() {
    train_through("socks5", &Proxy::start(socks));
}

#[test]
#[ignore = "slow"]
fn what_is_wrong_with_a_proxy_is_said() {
    let (http, socks) = (Proxy::start(connect), Proxy::start(socks));
    // A program that is no proxy.
    let mail = Proxy::start(|client| {
        client.write_all(b"220 mail.example.org ESMTP\r\n\r\n")?;
        Err(io::ErrorKind::InvalidData.into())
    });
    let free = free_ports(Transport::Tcp, 1).unwrap()[0];
    let deployment = Deployment::new(Reach::Tcp, "rounds = 5\nconnect_s = 30");
    let file = "london.toml";
    let whole = fs::read_to_string(deployment.file(file)).unwrap();
    for (url, words) in [
        (format!("http://user:secret@127.0.0.1:{}", http.port), "it answers 407 Proxy"),
        (format!("http://127.0.0.1:{}", mail.port), "it does not answer as an HTTP proxy"),
        (format!("socks5://user:secret@127.0.0.1:{}", socks.port), "does not connect to"),
        (format!("http://127.0.0.1:{free}"), "cannot be reached: Connection refused"),
        ("ftp://127.0.0.1".into(), "expected http://HOST:PORT or socks5://HOST:PORT"),
    ] {
        deployment.write(file, &format!("proxy = \"{url}\"\n{whole}"));
        let (_, report) = examine(&deployment, "london", &["--wait", "2"]);
        let found = errors(&report);
        assert!(found.iter().any(|one| one.contains(words)), "{url}: {found:?}");
        assert!(!report.to_string().contains("secret"), "{report}");
    }
}
