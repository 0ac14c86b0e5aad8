//! Many submitters, few GPUs.

use std::collections::BTreeMap;

use crate::support::{code, gpuvine, mesh, text};

/// Twenty submitters race for three GPUs with 200 short tasks. At no time do two tasks hold one
/// GPU: by a lock that each task takes itself, by the order in which they write down their begin
/// and end, and by the lease numbers that the nodes keep. All 200 end.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_submitters_race_for_three_gpus_and_none_is_ever_held_twice() {
    let mesh = mesh(&[
        ("alpha", "sim:1xA100-80G"),
        ("beta", "sim:1xA100-80G"),
        ("gamma", "sim:1xA100-80G"),
        ("delta", "none"),
    ])
    .await;
    let root = mesh.root().join("race");
    std::fs::create_dir(&root).unwrap();
    let root = root.to_str().unwrap().to_owned();
    let script = format!(
        "cd {root}; mkdir $GPUVINE_GPUS || exit 9; echo S $GPUVINE_GPUS $GPUVINE_JOB_ID >> log; \
         echo E $GPUVINE_GPUS $GPUVINE_JOB_ID >> log; rmdir $GPUVINE_GPUS"
    );
    let submitters = (0..20).map(async |number: usize| {
        let node = &mesh.nodes[number % mesh.nodes.len()];
        for _ in 0..10 {
            let output = gpuvine(node, &["run", "-q", "--", "sh", "-c", &script], b"").await;
            assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        }
    });
    futures::future::join_all(submitters).await;

    let log = std::fs::read_to_string(format!("{root}/log")).unwrap();
    let mut holds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut ended = 0;
    for line in log.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [what, gpu, job] = fields[..] else { panic!("{line}") };
        match what {
            "S" => assert_eq!(holds.insert(gpu, job), None, "{line}"),
            _ => {
                assert_eq!(holds.remove(gpu), Some(job), "{line}");
                ended += 1;
            }
        }
    }
    assert_eq!(ended, 200);
    // What the nodes say: every job has ended well, and every GPU is free again.
    for node in &mesh.nodes {
        node.until("all jobs have ended and all GPUs are free", |view| {
            let jobs = view.jobs.iter().all(|job| job.state == "succeeded" && job.attempt == 1);
            let gpus = view.gpus.iter().all(|gpu| gpu.state == "free");
            (jobs && gpus).then_some(())
        })
        .await
        .unwrap();
    }
    // Each lease raises its GPU's number by one: there were as many as jobs.
    mesh.nodes[0]
        .until("there were 200 leases", |view| {
            let leases: u64 = view.gpus.iter().map(|gpu| gpu.lease_seq).sum();
            (leases == 200).then_some(())
        })
        .await
        .unwrap();
    mesh.stop().await.unwrap();
}
