//! A long fat link: 100 MB both ways at once, 100 Mbit/s, 300 ms there and back, in the laboratory:
//! real nodes compared with bare TCP and bare QUIC.
//!
//! `cargo bench --bench long_fat` (as root; `-- bbr` or another part of a name narrows it). Seconds
//! of the second exchange and later ones: in the first, windows grow.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use gradvine::{
    links::{Conditions, LinkModel},
    units::NodeId,
};
use gradvine_lab::{self as lab, Router, Setup, Site, Wiring};

/// Numbers of a model: 4 bytes each.
const PARAMETERS: usize = 24_999_985;
const FRAME: usize = 4 * PARAMETERS;
const EXCHANGES: usize = 7;
const LATENCY_MS: u64 = 150;
const RATE: f64 = 100e6;
/// The system's default limits are below the capacity of the link, which is 3.75 MB and a queue of
/// the same length.
const BUFFERS: [(&str, &str); 2] =
    [("net.ipv4.tcp_rmem", "4096 131072 67108864"), ("net.ipv4.tcp_wmem", "4096 16384 67108864")];
/// libp2p's limits for a QUIC stream and connection, so that bare QUIC has the same.
const QUIC: (u32, u32) = (10_000_000, 15_000_000);

pub(crate) fn main() {
    if let Err(trouble) = lab::check() {
        println!("skipped: {trouble}");
        return;
    }
    let line = LinkModel { latency: LATENCY_MS * 1_000_000, rate: RATE, ..LinkModel::IDEAL };
    let ideal =
        line.line_time(LinkModel::on_the_line(FRAME)) as f64 / 1e9 + LATENCY_MS as f64 / 1e3;
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    println!(
        "{FRAME} bytes each way at once, {LATENCY_MS} ms one way, {} Mbit/s: {ideal:.2} s at best",
        RATE / 1e6
    );
    println!("{:34}  {:>8}  {:>8}  {:>8}  node / bare", "", "first", "others", "slowest");
    for (name, congestion, sysctls) in [
        ("TCP, cubic", Some("cubic"), &[][..]),
        ("TCP, cubic, buffers of 64 MB", Some("cubic"), &BUFFERS[..]),
        ("TCP, bbr, buffers of 64 MB", Some("bbr"), &BUFFERS[..]),
        ("QUIC", None, &[][..]),
    ] {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        if congestion.is_some_and(|congestion| lab::check_congestion(congestion).is_err()) {
            println!("{name:34}  this kernel has it not");
            continue;
        }
        let setup = Setup {
            congestion: congestion.map(Into::into),
            sysctls: sysctls
                .iter()
                .map(|(key, value)| ((*key).to_string(), (*value).to_string()))
                .collect(),
        };
        let bare = bare(&setup, line);
        show(&format!("{name}: bare"), &bare, None);
        show(&format!("{name}: nodes"), &nodes(&setup), Some(&bare));
    }
}

/// The first and the mean of the others.
fn show(name: &str, times: &[f64], bare: Option<&[f64]>) {
    let others = |times: &[f64]| times[1..].iter().sum::<f64>() / (times.len() - 1) as f64;
    let slowest = times[1..].iter().copied().fold(0.0, f64::max);
    let ratio = bare.map_or(String::new(), |bare| format!("{:.3}", others(times) / others(bare)));
    println!("{name:34}  {:6.2} s  {:6.2} s  {slowest:6.2} s  {ratio}", times[0], others(times));
}

/// Seconds of each exchange over a bare connection between two sites.
fn bare(setup: &Setup, line: LinkModel) -> Vec<f64> {
    let site = |node| Site::new(lab::name(9, node), NodeId::from(node), setup).expect("a place");
    let mut sites: Vec<Site> = (0..2).map(site).collect();
    let wiring = Wiring {
        conditions: Conditions { rest: line, ..Conditions::ideal() },
        links: vec![(NodeId(0), NodeId(1))],
        cuts: Vec::new(),
        reorders: false,
    };
    let router =
        Router::start(sites.iter_mut().filter_map(Site::tap).collect(), wiring).expect("a router");
    let listening: SocketAddr = (sites[0].address, 4001).into();
    let tcp = setup.congestion.is_some();
    let times = thread::scope(|scope| {
        let (here, there) = (&sites[0], &sites[1]);
        let server = scope.spawn(move || {
            here.within(
                || if tcp { serve_tcp(listening) } else { quic(Some(listening), listening) },
            )
            .expect("a thread")
        });
        // The server listens by then; otherwise the connection would be refused.
        thread::sleep(Duration::from_millis(500));
        let times = there
            .within(|| if tcp { dial_tcp(listening) } else { quic(None, listening) })
            .expect("a thread");
        server.join().expect("the server ends");
        times
    });
    router.stop().expect("the router ends");
    times
}

fn serve_tcp(listening: SocketAddr) -> Vec<f64> {
    let listener = TcpListener::bind(listening).expect("a port");
    exchange(&listener.accept().expect("a connection").0)
}

fn dial_tcp(listening: SocketAddr) -> Vec<f64> {
    exchange(&TcpStream::connect(listening).expect("a connection"))
}

/// Both ends write and read at once; the next exchange begins when this one is over here.
fn exchange(stream: &TcpStream) -> Vec<f64> {
    let frame = vec![7u8; FRAME];
    let time = || {
        let started = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| (&mut &*stream).write_all(&frame).expect("the frame leaves"));
            let mut left = FRAME;
            let mut buffer = vec![0; 1 << 18];
            while left > 0 {
                let most = left.min(buffer.len());
                left -= (&mut &*stream).read(&mut buffer[..most]).expect("the other end writes");
            }
        });
        started.elapsed().as_secs_f64()
    };
    (0..EXCHANGES).map(|_| time()).collect()
}

/// The same on two unidirectional streams of a QUIC connection.
fn quic(serves: Option<SocketAddr>, listening: SocketAddr) -> Vec<f64> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async move {
        let key = libp2p::identity::Keypair::generate_ed25519();
        let mut transport = quinn::TransportConfig::default();
        transport
            .stream_receive_window(QUIC.0.into())
            .receive_window(QUIC.1.into())
            .send_window(u64::from(QUIC.0));
        let transport = Arc::new(transport);
        let connection = match serves {
            Some(own) => {
                let tls = libp2p_tls::make_server_config(&key).expect("a certificate");
                let tls = quinn::crypto::rustls::QuicServerConfig::try_from(tls).expect("TLS 1.3");
                let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
                config.transport = transport;
                let endpoint = quinn::Endpoint::server(config, own).expect("a port");
                endpoint.accept().await.expect("a dialler").await.expect("a connection")
            }
            None => {
                let tls = libp2p_tls::make_client_config(&key, None).expect("a certificate");
                let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).expect("TLS 1.3");
                let mut config = quinn::ClientConfig::new(Arc::new(tls));
                config.transport_config(transport);
                let endpoint =
                    quinn::Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into()).expect("a port");
                endpoint
                    .connect_with(config, listening, "l")
                    .expect("an address")
                    .await
                    .expect("a connection")
            }
        };
        let mut out = connection.open_uni().await.expect("a stream");
        let frame = vec![7u8; FRAME];
        out.write_all(&frame[..1]).await.expect("the stream opens");
        let mut inward = connection.accept_uni().await.expect("a stream");
        let mut times = Vec::new();
        let mut buffer = vec![0; 1 << 18];
        for exchange in 0..EXCHANGES {
            let started = Instant::now();
            let written = async { out.write_all(&frame).await.expect("the frame leaves") };
            let read = async {
                let mut left = FRAME + usize::from(exchange == 0);
                while left > 0 {
                    let most = left.min(buffer.len());
                    left -= inward
                        .read(&mut buffer[..most])
                        .await
                        .expect("the other end writes")
                        .expect("not the end");
                }
            };
            futures::join!(written, read);
            times.push(started.elapsed().as_secs_f64());
        }
        // The other end may still read.
        let _ = out.finish();
        let _ = tokio::time::timeout(Duration::from_secs(20), out.stopped()).await;
        times
    })
}

/// Seconds of each round of two nodes that send each other their whole models, by the clock of the
/// slower one.
fn nodes(setup: &Setup) -> Vec<f64> {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("run");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradvine"));
    command.args([
        "lab",
        "-q",
        "--topology",
        "complete:2",
        "--warm",
        "1",
        "--rounds",
        &EXCHANGES.to_string(),
        "--out",
    ]);
    command.arg(&out);
    for set in [
        format!("network.latency_ms={LATENCY_MS}"),
        format!("network.bandwidth_mbps={}", RATE / 1e6),
        format!("model.hidden=[{}]", (PARAMETERS - 10) / 75),
        "data.split=iid".into(),
        "optimizer.batch=1".into(),
        "optimizer.step=1e-6".into(),
        "rule.kind=d-psgd".into(),
        "compressor.kind=identity".into(),
    ] {
        command.args(["--set", &set]);
    }
    match &setup.congestion {
        Some(congestion) => command.args(["--congestion", congestion]),
        None => command.args(["--transport", "quic"]),
    };
    for (key, value) in &setup.sysctls {
        command.args(["--sysctl", &format!("{key}={value}")]);
    }
    let status = command.status().expect("the laboratory starts");
    assert!(status.success(), "the laboratory ends with {status}");
    rounds(&out.join("metrics.jsonl"))
}

fn rounds(metrics: &Path) -> Vec<f64> {
    let text = std::fs::read_to_string(metrics).expect("metrics");
    let mut over = [0.0f64; EXCHANGES + 1];
    for line in text.lines() {
        let metric: serde_json::Value = serde_json::from_str(line).expect("a metric");
        let round = metric["round"].as_u64().expect("a round") as usize;
        over[round] = over[round].max(metric["time_s"].as_f64().expect("a time"));
    }
    over.windows(2).map(|pair| pair[1] - pair[0]).collect()
}
