//! A long fat link in the laboratory, on Linux only.

#[cfg(target_os = "linux")]
#[path = "long_fat/linux.rs"]
mod linux;

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
    #[cfg(not(target_os = "linux"))]
    println!("skipped: the laboratory needs Linux");
}
