//! A long fat line in the laboratory, which is Linux's alone.

#[cfg(target_os = "linux")]
#[path = "long_fat/linux.rs"]
mod linux;

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
    #[cfg(not(target_os = "linux"))]
    println!("skipped: the laboratory needs Linux");
}
