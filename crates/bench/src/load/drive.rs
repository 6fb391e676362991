//! One thread of load: its connections, its schedule and one `epoll`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;
use types::{Error, Kind, Result};

use super::connection::Connection;
use super::{BusyPolicy, Requests};
use crate::pace::{self, Due, Schedule};
use crate::run::{Context, Tally};

/// Time within which a thread notices that another thread has failed.
const LOOK_UP: Duration = Duration::from_millis(100);

/// Time after the grace in which requests in flight may still be answered.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

pub(super) struct Driver<'a> {
    address: SocketAddr,
    poll: OwnedFd,
    connections: Vec<Connection>,
    /// Free connections, the longest free first, so that an open loop uses all of them.
    free: VecDeque<usize>,
    /// Connections that rest after an answer 429, with the end of their rest.
    resting: Vec<(Instant, usize)>,
    requests: Box<dyn Requests + 'a>,
    busy: BusyPolicy,
    tally: Tally,
}

impl<'a> Driver<'a> {
    pub(super) fn connect(
        address: SocketAddr,
        connections: usize,
        requests: Box<dyn Requests + 'a>,
        busy: BusyPolicy,
    ) -> Result<Self> {
        let poll = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|error| Error::io("making an epoll", error.into()))?;
        let mut driver = Driver {
            address,
            poll,
            connections: Vec::with_capacity(connections),
            free: (0..connections).collect(),
            resting: Vec::new(),
            requests,
            busy,
            tally: Tally::default(),
        };
        for index in 0..connections {
            let connection = driver.open(index).map_err(|message| {
                Error::new(Kind::Io, message)
                    .hint("is the server running, and may it have that many connections?")
            })?;
            driver.connections.push(connection);
        }
        Ok(driver)
    }

    fn open(&self, index: usize) -> Result<Connection, String> {
        let connection = Connection::open(self.address)?;
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.poll, &connection, EventData::new_u64(index as u64), events)
            .map_err(|error| format!("watching a connection failed: {error}"))?;
        Ok(connection)
    }

    pub(super) fn drive(mut self, context: &Context<'_>) -> Result<Tally, String> {
        pace::sleep_precisely();
        let mut schedule = context.schedule();
        let mut events: Vec<Event> = Vec::with_capacity(256);
        while !context.stopped() {
            let now = Instant::now();
            if now >= context.give_up {
                self.give_up(context, &mut schedule, now)?;
            }
            let Some(wake) = self.send(&mut schedule, now)? else { break };
            let wake = self.resting.iter().map(|(until, _)| *until).fold(wake, Instant::min);
            let wait = wake.saturating_duration_since(Instant::now());
            let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
            events.clear();
            match epoll::wait(&self.poll, spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(format!("waiting for answers failed: {error}")),
            }
            for event in &events {
                let (index, flags) = ({ event.data }.u64() as usize, event.flags);
                self.advance(index, flags, context, &mut schedule)?;
            }
        }
        Ok(self.tally)
    }

    /// Sends all due operations for which a connection is free. Returns the time of the next check, `None` when all is done.
    fn send(&mut self, schedule: &mut Schedule, now: Instant) -> Result<Option<Instant>, String> {
        let free = &mut self.free;
        self.resting.retain(|(until, index)| {
            if *until <= now {
                free.push_back(*index);
            }
            *until > now
        });
        while let Some(index) = self.free.front().copied() {
            match schedule.due(now) {
                Due::Now(intended) => {
                    self.free.pop_front();
                    self.begin(index, intended)?;
                }
                Due::At(at) => return Ok(Some(at.min(now + LOOK_UP))),
                Due::Never if self.free.len() + self.resting.len() == self.connections.len() => {
                    return Ok(None);
                }
                Due::Never => break,
            }
        }
        Ok(Some(now + LOOK_UP))
    }

    fn begin(&mut self, index: usize, intended: Instant) -> Result<(), String> {
        let request = self.requests.next();
        if self.connections[index].closed {
            self.connections[index] = self.open(index)?;
            self.tally.reconnects += 1;
        }
        let now = Instant::now();
        self.connections[index].begin(request.bytes, request.tag, intended, now)
    }

    fn advance(
        &mut self,
        index: usize,
        flags: EventFlags,
        context: &Context<'_>,
        schedule: &mut Schedule,
    ) -> Result<(), String> {
        let connection = &mut self.connections[index];
        if flags.contains(EventFlags::OUT) {
            connection.write()?;
        }
        if !flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            return Ok(());
        }
        if !connection.read()? {
            return Ok(());
        }
        let now = Instant::now();
        let Some(flight) = connection.flight.take() else { return Ok(()) };
        match connection.incoming.status() {
            200..=299 => {
                self.requests.on_latency(flight.tag, now.saturating_duration_since(flight.intended));
                let units = self.requests.on_answer(flight.tag, connection.incoming.body())?;
                context.record_done(&mut self.tally, flight.intended, flight.sent, now, units);
                self.free.push_back(index);
                // Sends now rather than after the other answers of this turn, so that the server does not wait for the client.
                self.send(schedule, now)?;
            }
            429 if self.busy == BusyPolicy::Rest => {
                self.tally.refused += 1;
                self.requests.on_rest(flight.tag);
                let seconds = connection.incoming.retry_after().unwrap_or(0);
                let rest = Duration::from_secs(seconds.into())
                    .clamp(Duration::from_millis(20), Duration::from_secs(1));
                self.resting.push((now + rest, index));
            }
            status => {
                self.requests.on_refusal(flight.tag, status, connection.incoming.body())?;
                self.tally.refused += 1;
                self.free.push_back(index);
                self.send(schedule, now)?;
            }
        }
        Ok(())
    }

    /// Handles the end of the grace. Operations that an open loop could not send are recorded with the time that they have
    /// waited, and no more are sent. A request that is still unanswered `LAST_ANSWERS` later has no honest latency: it fails the
    /// run.
    fn give_up(
        &mut self,
        context: &Context<'_>,
        schedule: &mut Schedule,
        now: Instant,
    ) -> Result<(), String> {
        while let Due::Now(intended) = schedule.due(now) {
            // A closed loop ended long ago; only an open loop has intended times left.
            context.record_unsent(&mut self.tally, intended, now);
        }
        let unanswered = self.connections.iter().filter(|connection| connection.flight.is_some()).count();
        if unanswered > 0 && now >= context.give_up + LAST_ANSWERS {
            return Err(format!("{unanswered} requests were not answered within the grace"));
        }
        Ok(())
    }
}
