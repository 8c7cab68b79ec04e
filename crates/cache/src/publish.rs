//! [`publish`]: sets a watch channel's value cheaply when nobody waits.

use tokio::sync::watch;

/// Sets the value and wakes the receivers. Waking without receivers would still cost about 400
/// instructions a change. A receiver that subscribes concurrently and reads the value before it
/// waits misses nothing: either it reads the new value, or it subscribed in time to be woken.
pub(crate) fn publish<T>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|current| {
        *current = value;
        sender.receiver_count() > 0
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn receivers_are_woken_and_later_receivers_get_the_value() {
        let sender = watch::Sender::new(0);
        publish(&sender, 1);
        let mut receiver = sender.subscribe();
        assert_eq!(*receiver.borrow(), 1);
        let woken =
            tokio::spawn(async move { receiver.wait_for(|value| *value == 2).await.is_ok() });
        tokio::task::yield_now().await;
        publish(&sender, 2);
        assert!(woken.await.expect("the task ends"));
    }
}
