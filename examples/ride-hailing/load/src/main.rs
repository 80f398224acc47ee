//! 2,000 riders as a load test with Goose: calm, then at ten times the rate, then calm again.
//!
//!     impatient-riders --host http://127.0.0.1:8080 --users 2000 --increase-time 3s --run-time 77s --timeout 2 --accept-invalid-certs --no-metrics
//!
//! A rider waits for an answer or gives up (`--timeout`), pauses, and goes on; what failed is tried again, up to three times. `RIDERS_LOG` is where
//! every request is noted: when it was to be sent, how late it was, what it took from then on, what came of it. `RIDERS_PHASES` are the
//! seconds of the three phases. Without `--accept-invalid-certs` each of the 2,000 clients reads the system's certificates first, for nothing.

mod log;

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use goose::prelude::*;
use rand::Rng as _;

use log::{Log, Sent};

/// What riders and drivers ask for, and how often of a hundred times.
const ENDPOINTS: [(Endpoint, u32); 6] = [
    (Endpoint::RideRequest, 20),
    (Endpoint::FareEstimate, 25),
    (Endpoint::NearbyDrivers, 29),
    (Endpoint::DriverLocation, 15),
    (Endpoint::TripHistory, 10),
    (Endpoint::AdminStatistics, 1),
];

const RETRIES: u32 = 3;

#[derive(Clone, Copy, Debug)]
enum Endpoint {
    RideRequest,
    FareEstimate,
    NearbyDrivers,
    DriverLocation,
    TripHistory,
    AdminStatistics,
}

impl Endpoint {
    fn any() -> Self {
        let mut number = rand::rng().random_range(0..100);
        for (endpoint, share) in ENDPOINTS {
            if number < share {
                return endpoint;
            }
            number -= share;
        }
        Self::RideRequest
    }

    fn request(self, rider: usize) -> (GooseMethod, String) {
        match self {
            Self::RideRequest => (GooseMethod::Post, "/v1/rides/request".to_owned()),
            Self::FareEstimate => (GooseMethod::Get, "/v1/rides/estimate".to_owned()),
            Self::NearbyDrivers => (GooseMethod::Get, "/v1/drivers/nearby".to_owned()),
            Self::DriverLocation => (GooseMethod::Post, format!("/v1/drivers/d-{rider}/location")),
            Self::TripHistory => (GooseMethod::Get, "/v1/trips/history".to_owned()),
            Self::AdminStatistics => (GooseMethod::Get, "/v1/admin/statistics".to_owned()),
        }
    }
}

/// The run, as it was told.
struct Run {
    /// When the first rider came, by both clocks: clients take a while to make.
    began: OnceLock<(Instant, SystemTime)>,
    /// When riders lose their calm, and when they find it again.
    surge: (Duration, Duration),
    end: Duration,
    log: Log,
}

static RUN: OnceLock<Run> = OnceLock::new();

impl Run {
    fn from_environment() -> Result<Self, String> {
        let said = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
        let number =
            |text: &str| (text.parse::<u64>()).map_err(|_| format!("not a number: {text}"));
        let phases = said("RIDERS_PHASES")?;
        let seconds: Vec<u64> = phases.split(',').map(number).collect::<Result<_, _>>()?;
        let &[before, surge, after] = seconds.as_slice() else {
            return Err(format!(
                "RIDERS_PHASES are three numbers, such as 20,40,20; this is {phases:?}"
            ));
        };
        let at = Duration::from_secs;
        Ok(Self {
            began: OnceLock::new(),
            surge: (at(before), at(before + surge)),
            end: at(before + surge + after),
            log: Log::create(&said("RIDERS_LOG")?)
                .map_err(|error| format!("RIDERS_LOG: {error}"))?,
        })
    }

    fn began(&self) -> Instant {
        let now = || (Instant::now(), SystemTime::now());
        self.began.get_or_init(now).0
    }

    fn is_over(&self) -> bool {
        self.began().elapsed() >= self.end
    }

    /// When the next request is due: in 1 to 5 s, and in a tenth of that in the surge; nothing is due after the end.
    fn next_due(&self) -> Instant {
        let since = self.began().elapsed();
        let calm = Duration::from_micros(rand::rng().random_range(1_000_000..5_000_000));
        let (surge, calm_again) = self.surge;
        let due = if (surge..calm_again).contains(&since) {
            since + calm / 10
        } else if (since..since + calm).contains(&surge) {
            // Whoever pauses calmly when the surge begins shortens what is left of it.
            surge + (since + calm - surge) / 10
        } else {
            since + calm
        };
        self.began() + due.min(self.end)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let run = Run::from_environment()?;
    RUN.set(run).map_err(|_| "started twice")?;
    let riders = scenario!("Rider")
        .register_transaction(transaction!(pause_first).set_on_start())
        .register_transaction(transaction!(ask_for_something));
    GooseAttack::initialize()?
        .register_scenario(riders)
        .execute()
        .await?;
    if let Some(run) = RUN.get() {
        run.log.finish(run.began.get().map(|began| began.1))?;
    }
    Ok(())
}

/// A pause before the first request, so that not all begin together.
async fn pause_first(rider: &mut GooseUser) -> TransactionResult {
    if let Some(run) = RUN.get() {
        let due = run.next_due();
        rider.set_session_data(Due(due));
        tokio::time::sleep_until(due.into()).await;
    }
    Ok(())
}

/// When a rider's next request is due: from then on it counts, however late the rider is woken.
#[derive(Clone, Copy)]
struct Due(Instant);

/// One wish: the request, its retries, and the pauses after each.
async fn ask_for_something(rider: &mut GooseUser) -> TransactionResult {
    let Some(run) = RUN.get() else { return Ok(()) };
    let endpoint = Endpoint::any();
    let (method, path) = endpoint.request(rider.weighted_users_index);
    let name = format!("rider-{}", rider.weighted_users_index);
    if run.is_over() {
        // Goose ends it in a moment.
        tokio::time::sleep(Duration::from_millis(50)).await;
        return Ok(());
    }
    let mut due = (rider.get_session_data::<Due>()).map_or_else(Instant::now, |due| due.0);
    for attempt in 0..=RETRIES {
        let builder = rider
            .get_request_builder(&method, &path)?
            .header("x-rider-id", &name);
        let request = GooseRequest::builder().set_request_builder(builder).build();
        let lag = due.elapsed();
        let answer = rider.request(request).await?.response;
        let status = match answer {
            // The body belongs to the answer: without it the connection could not be used again.
            Ok(answer) => {
                let status = answer.status().as_u16();
                answer.bytes().await.map_or(Sent::BROKEN, |_| status)
            }
            Err(error) if error.is_timeout() => Sent::GAVE_UP,
            Err(_) => Sent::BROKEN,
        };
        run.log.note(&Sent {
            due: due.duration_since(run.began()),
            lag,
            took: due.elapsed(),
            endpoint: endpoint as u8,
            attempt,
            status,
        });
        due = run.next_due();
        tokio::time::sleep_until(due.into()).await;
        if (200..300).contains(&status) || run.is_over() {
            break;
        }
    }
    rider.set_session_data(Due(due));
    Ok(())
}
