"""What this machine offers: rules, each with a finding, a reason and a fix."""
