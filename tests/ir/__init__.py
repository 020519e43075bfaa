"""What instrumented programs tell the recorder, construct by construct."""
