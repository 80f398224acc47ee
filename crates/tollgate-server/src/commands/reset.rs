//! `tollgate reset`: forgets what a caller used, and says what that was.

use std::io::Write;

use super::database::block_on;
use super::inspect::{facts, in_memory, out_of_reach};
use super::setting::Setting;
use crate::cli::ResetArgs;
use crate::failure::Failure;
use crate::usage::Forgotten;

/// Runs the command.
pub(crate) fn reset(args: &ResetArgs, out: &mut impl Write) -> Result<(), Failure> {
    let forgotten = block_on(async {
        let setting = Setting::read(&args.who.config).await?;
        let facts = facts(&args.who, &setting.policy)?;
        let request = facts.request();
        if !request.identifies_caller() && !args.everybody {
            return Err(Failure::BadInput(
                "this names no caller, so it would reset what all share; say whom you mean by --client, --ip or \
                 --attribute, or --everybody if that is what you mean"
                    .to_owned(),
            ));
        }
        let Some(limiter) = setting.limiter()? else {
            return Err(in_memory(&setting.config, "reset"));
        };
        let policy = &setting.policy;
        let matched = policy.rules().matching(&request);
        let forgotten = limiter.matched(&matched).reset().await;
        let so = "only a part may have been forgotten, or nothing";
        let forgotten = forgotten.map_err(|error| out_of_reach(&error, so))?;
        Ok(Forgotten::of(&forgotten, policy, &facts))
    })?;
    if args.who.json {
        serde_json::to_writer_pretty(&mut *out, &forgotten).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(out, "{}", forgotten.summary())?;
    if let Some(hint) = &forgotten.hint {
        writeln!(out, "hint: {hint}")?;
    }
    Ok(())
}
