//! What the kernel does for a socket of datagrams: how much it holds, and what it dropped.
#![allow(unsafe_code)]

use std::net::UdpSocket;

use socket2::SockRef;

/// What the kernel is asked to hold of datagrams that nobody has read.
pub(super) const RECEIVE_BYTES: usize = 8 << 20;

/// Lets the kernel hold [`RECEIVE_BYTES`], or as much of it as it grants (`net.core.rmem_max`). A process that may administer
/// the network gets all of it.
pub(super) fn grow(socket: &UdpSocket) {
    if !force(socket, RECEIVE_BYTES)
        && let Err(e) = SockRef::from(socket).set_recv_buffer_size(RECEIVE_BYTES)
    {
        tracing::debug!(error = %e, "syslog: the kernel holds no more datagrams than it does for any socket");
    }
}

#[cfg(target_os = "linux")]
fn force(socket: &UdpSocket, bytes: usize) -> bool {
    use std::os::fd::AsRawFd;

    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the option takes an int, which is read during the call and no longer.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            std::ptr::from_ref(&bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    done == 0
}

#[cfg(not(target_os = "linux"))]
fn force(_: &UdpSocket, _: usize) -> bool {
    false
}

/// How many datagrams the kernel dropped since the socket was made, since what it held was not read in time; it counts on after
/// `u32::MAX` from 0. `None`: this kernel does not say.
#[cfg(target_os = "linux")]
pub(super) fn dropped(socket: &UdpSocket) -> Option<u32> {
    use std::os::fd::AsRawFd;

    /// `SK_MEMINFO_DROPS`, of as many figures as `SO_MEMINFO` gives.
    const DROPS: usize = 8;
    let mut figures = [0u32; DROPS + 1];
    let mut bytes = size_of_val(&figures) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, which is what `figures` has.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            figures.as_mut_ptr().cast(),
            &mut bytes,
        )
    };
    (done == 0 && bytes as usize == size_of_val(&figures)).then(|| figures[DROPS])
}

#[cfg(not(target_os = "linux"))]
pub(super) fn dropped(_: &UdpSocket) -> Option<u32> {
    None
}
