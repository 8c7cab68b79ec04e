//! Rules of single kinds, each as one request and its answer.
